"""Describes apps whose code must not run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cornserve.app.load import load_app
from cornserve.app.spec import AppSpec
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.description import AppDescription
from cornserve.app_host.fork_client import ForkServer
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.limits import Limits
from cornserve.task.errors import DefinitionError

DescribeApp = Callable[[str, AppSpec], Awaitable[AppDescription]]
"""Describes the app of a name and a spec. Raises `DefinitionError`; other errors may be temporary."""

_MODULE = "cornserve_described_app"


async def describe_app(fork_server: ForkServer, limits: Limits, name: str, spec: AppSpec) -> AppDescription:
    """Loads the app, with its code in a process that ends afterward.

    Raises:
        DefinitionError: the spec does not define an app, or the code that defines it hangs, exits or crashes.
        AppLoadError, ForkServerError: another attempt may succeed.
    """
    if spec.model is not None:
        return await _describe_model(name, spec, spec.model.id, limits.import_seconds)
    host = await AppHost.start(fork_server, name, spec, _MODULE, limits)
    host.close()
    return host.description


async def _describe_model(name: str, spec: AppSpec, model: str, seconds: float) -> AppDescription:
    """Describes an app that consists of tasks of the library."""
    try:
        async with asyncio.timeout(seconds):
            return AppDescription.of_app(await run_in_daemon_thread(load_app, name, spec, _MODULE))
    except TimeoutError:
        message = f"reading the files of {model} takes longer than {seconds:g} s: copy them closer"
        raise DefinitionError(message) from None
