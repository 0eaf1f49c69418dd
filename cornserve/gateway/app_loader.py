"""Loads versions of apps: library tasks into the gateway, and all other code into app hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from cornserve.app.load import load_app
from cornserve.app.record import Route
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.fork_client import ForkServer
from cornserve.control.store.base import AppRecord
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.gateway.play.hosted_app import HostedApp
from cornserve.gateway.play.local_app import LocalApp
from cornserve.gateway.play.player import PlayableApp
from cornserve.gateway.served_app import ServedApp
from cornserve.limits import Limits


class AppLoader:
    def __init__(self, fork_server: ForkServer, limits: Limits) -> None:
        self._fork_server = fork_server
        self._limits = limits

    async def load(self, record: AppRecord, route: Route, module: str, suspend: Callable[[str], None]) -> ServedApp:
        """Loads the code of the route's version.

        Args:
            module: the name under which the code is imported.
            suspend: suspends the app for the given reason.
        """
        code = await self._load_code(record.name, route, module, suspend)
        return ServedApp(code, record.uid, module, route, int(time.time()))

    async def _load_code(self, name: str, route: Route, module: str, suspend: Callable[[str], None]) -> PlayableApp:
        if route.spec.model is not None:
            return LocalApp(await run_in_daemon_thread(load_app, name, route.spec, module))
        start = partial(AppHost.start, self._fork_server, name, route.spec, module, self._limits)
        host = await start()
        if host.description.library_paths is None:
            return HostedApp(host, start, suspend)
        host.close()
        return await asyncio.to_thread(lambda: LocalApp(host.description.build_library_app()))
