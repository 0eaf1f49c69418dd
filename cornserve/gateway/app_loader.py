"""Loads versions of apps: library tasks into the gateway, and all other code into app hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from functools import partial

from cornserve.app.load import load_app
from cornserve.app.record import Route
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.fork_client import ForkServer
from cornserve.blocking_apps import CurrentApp
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.gateway.task_runs.hosted_app import HostedApp
from cornserve.gateway.task_runs.local_app import LocalApp
from cornserve.gateway.task_runs.task_runner import AppCode
from cornserve.limits import Limits


class AppLoader:
    """Loads apps.

    Args:
        blocking_apps: the apps of which even library tasks run in app hosts, because they have blocked a gateway.
    """

    def __init__(self, fork_server: ForkServer, limits: Limits, blocking_apps: Container[str] = ()) -> None:
        self._fork_server = fork_server
        self._limits = limits
        self._blocking_apps = blocking_apps
        self._current_app = CurrentApp.of_process()

    async def load(self, name: str, route: Route, module: str, suspend: Callable[[str], None]) -> AppCode:
        """Loads the code of the route's version.

        Args:
            module: the name under which the code is imported.
            suspend: suspends the app for the given reason.
        """
        is_blocking = await asyncio.to_thread(self._blocking_apps.__contains__, name)
        if route.spec.model is not None and not is_blocking:
            return LocalApp(await run_in_daemon_thread(load_app, name, route.spec, module), self._current_app)
        start = partial(AppHost.start, self._fork_server, name, route.spec, module, self._limits)
        host = await start()
        if host.description.library_paths is None or is_blocking:
            return HostedApp(host, start, suspend)
        host.close()
        app = await asyncio.to_thread(host.description.build_library_app)
        return LocalApp(app, self._current_app)
