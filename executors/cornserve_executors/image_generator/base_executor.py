"""The base class of the executors of image generation models."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from cornserve_executors.base import Executor, InvocationContext, ProgressReporter
from cornserve_executors.base.executor import Request, Result
from cornserve_executors.models import check_model
from cornserve_tasklib.image_generation import ImageModelSettings, ImageProgress

Settings = TypeVar("Settings", bound=ImageModelSettings)


class ImageEngine(Protocol):
    """Runs components of an image generation model."""

    async def run(self) -> None:
        """Runs until cancelled. Raises `EngineDeadError` when the device fails permanently."""

    async def warm_up(self) -> None:
        """Runs the first work, so that torch completes its lazy initialization. `run` must be running."""

    async def shutdown(self) -> None:
        """Waits until the current work of the device is done."""


class ImageExecutor(Executor[Settings, Request, Result]):
    """Loads, watches and stops an engine. A subclass imports and invokes it."""

    _engine: ImageEngine
    _engine_task: asyncio.Task[None]

    def import_engine(self) -> Callable[[Any], ImageEngine]:
        """Imports diffusers, which takes seconds, and returns the engine's constructor."""
        raise NotImplementedError

    async def start(self, report_progress: ProgressReporter) -> None:
        check_model(self.config.model_id)
        report_progress("importing diffusers")
        create_engine = await asyncio.to_thread(self.import_engine)
        report_progress("loading weights")
        self._engine = await asyncio.to_thread(create_engine, self.config)
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
            await self._engine.shutdown()


def progress_sender(context: InvocationContext) -> Callable[[ImageProgress], Awaitable[None]] | None:
    """Returns a function that sends an item of the stream `progress`, or None if the caller does not read it."""
    if not context.is_requested("progress"):
        return None

    async def send(progress: ImageProgress) -> None:
        await context.send("progress", progress.model_dump_json(exclude_defaults=True).encode())

    return send
