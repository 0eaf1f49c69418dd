"""The base class of executors whose engine runs a model with torch in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from cornserve.daemon_thread import run_in_daemon_thread
from cornserve_executors.base import Executor, ProgressReporter
from cornserve_executors.base.executor import Request, Result
from cornserve_executors.models import check_model
from cornserve_tasklib.model_settings import ModelSettings

Settings = TypeVar("Settings", bound=ModelSettings)


class DeviceEngine(Protocol):
    """Runs a model on one device."""

    async def run(self) -> None:
        """Runs until cancelled. Raises `EngineDeadError` when the device fails permanently."""

    async def warm_up(self) -> None:
        """Runs the first work, so that torch completes its lazy initialization. `run` must be running."""

    def shutdown(self) -> None:
        """Blocks until the current work of the device is done."""


class DeviceExecutor(Executor[Settings, Request, Result]):
    """Loads, watches and stops an engine. A subclass imports and invokes it."""

    library: ClassVar[str]
    """The library that takes seconds to import, for reports of the progress."""

    _engine: DeviceEngine
    _engine_task: asyncio.Task[None]

    def import_engine(self) -> Callable[[Any], DeviceEngine]:
        """Imports the library, and returns the engine's constructor, which blocks."""
        raise NotImplementedError

    async def start(self, report_progress: ProgressReporter) -> None:
        await run_in_daemon_thread(check_model, self.config.model_id, self.config.revision)
        report_progress(f"importing {self.library}")
        # A process that is stopped does not wait for a daemon thread.
        create_engine = await run_in_daemon_thread(self.import_engine)
        report_progress("loading weights")
        self._engine = await run_in_daemon_thread(create_engine, self.config)
        self._engine_task = asyncio.create_task(self._engine.run())
        report_progress("warming up")
        await self._engine.warm_up()

    async def wait_engine_death(self) -> str:
        await asyncio.wait({self._engine_task})
        return f"the device failed: {self._engine_task.exception()}"

    async def stop(self) -> None:
        if hasattr(self, "_engine_task"):
            self._engine_task.cancel()
            await asyncio.gather(self._engine_task, return_exceptions=True)
        if hasattr(self, "_engine"):
            await asyncio.to_thread(self._engine.shutdown)
