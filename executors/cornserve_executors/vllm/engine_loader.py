"""Loads a vLLM engine in a thread, and aborts the loading."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cornserve.daemon_thread import run_in_daemon_thread
from cornserve_executors.base import ProgressReporter
from cornserve_executors.vllm import engine_fork, settings
from cornserve_tasklib.engine import EngineSettings

if TYPE_CHECKING:
    from cornserve_executors.vllm.engine import VllmEngine


class EngineLoader:
    """Loads an engine in a thread, so that the event loop stays responsive.

    Args:
        import_engine: imports vLLM, and returns the engine's constructor.
    """

    def __init__(self, import_engine: Callable[[], Callable[[Any], VllmEngine]]) -> None:
        self._import_engine = import_engine
        self._task: asyncio.Task[VllmEngine] | None = None

    async def load(self, config: EngineSettings, report_progress: ProgressReporter) -> VllmEngine:
        await settings.check(config)
        engine_fork.fork_if_safe(config)
        settings.prepare_environment()
        report_progress("importing vLLM")
        # On a busy machine, imports take half a minute. A process that is stopped does not wait for them.
        engine_type = await run_in_daemon_thread(self._import_engine)
        report_progress("loading weights")
        self._task = asyncio.create_task(asyncio.to_thread(engine_type, config))
        return await asyncio.shield(self._task)

    async def abort(self) -> None:
        """Stops the loading, or shuts the engine down if it is loaded."""
        if self._task is None:
            return
        while not self._task.done():
            # vLLM has no way to stop loading, but it fails when its engine process is gone.
            for process in multiprocessing.active_children():
                process.kill()
            await asyncio.wait({self._task}, timeout=0.1)
        if self._task.exception() is None:
            self._task.result().shutdown()
