"""Runs a gateway that runs all apps in its own process: `python -m benchmarks.harness.local_gateway …`.

The tasks of `cornserve_tasklib` always run there. This program measures the cost of such runs with an executor that
does not need an engine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from cornserve.app.load import load_app
from cornserve.app.record import Route
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.gateway.__main__ import main
from cornserve.gateway.app_loader import AppLoader
from cornserve.gateway.task_runs.local_app import LocalApp
from cornserve.gateway.task_runs.task_runner import AppCode


class LocalAppLoader(AppLoader):
    """Loads all apps into this process."""

    async def load(self, name: str, route: Route, module: str, suspend: Callable[[str], None]) -> AppCode:
        return LocalApp(await run_in_daemon_thread(load_app, name, route.spec, module), self._current_app)


if __name__ == "__main__":
    AppLoader.load = LocalAppLoader.load  # type: ignore[assignment,method-assign]
    sys.exit(main())
