"""How vLLM comes into an executor's process, and how that is broken off."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cornserve_executors.base import ProgressReporter
from cornserve_executors.vllm import settings
from cornserve_tasklib.engine import EngineSettings

if TYPE_CHECKING:
    from cornserve_executors.vllm.engine import VllmEngine


class EngineLoader:
    """Runs in a thread, so that callers can watch it.

    Args:
        import_engine: imports vLLM, and returns what is called with the settings.
    """

    def __init__(self, import_engine: Callable[[], Callable[[Any], VllmEngine]]) -> None:
        self._import_engine = import_engine
        self._task: asyncio.Task[VllmEngine] | None = None

    async def run(self, config: EngineSettings, report_progress: ProgressReporter) -> VllmEngine:
        settings.check(config)
        settings.prepare_environment()
        report_progress("importing vLLM")
        engine_type = await asyncio.to_thread(self._import_engine)
        report_progress("loading weights")
        self._task = asyncio.create_task(asyncio.to_thread(engine_type, config))
        return await asyncio.shield(self._task)

    async def undo(self) -> None:
        if self._task is None:
            return
        while not self._task.done():
            # vLLM cannot be told to stop loading, but it gives up when its engine process, once started, is gone.
            for process in multiprocessing.active_children():
                process.kill()
            await asyncio.wait({self._task}, timeout=0.1)
        if self._task.exception() is None:
            self._task.result().shutdown()
