"""Runs an engine during a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class RunnableEngine(Protocol):
    async def run(self) -> None:
        """Works until cancelled."""


@asynccontextmanager
async def running(engine: RunnableEngine) -> AsyncIterator[None]:
    """Runs the engine, and waits at the end of the block until it has ended: then nothing refers to its model."""
    task = asyncio.create_task(engine.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
