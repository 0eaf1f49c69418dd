"""Engines that tests share, by their model and options."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, Generic, TypeVar

import pytest

from cornserve.task import UnitTask

Engine = TypeVar("Engine")

MAX_ALIVE: Final = 2


class EnginePool(Generic[Engine]):
    """Starts an engine when a test first needs it. A third one ends the engine that tests have not used for longest.

    All calls belong into one event loop, which ends the engines when it ends: that of fixtures or tests with the loop
    scope `session`.

    Args:
        run: runs the engine of a task until the block ends.
        is_alive: returns whether tests can still use an engine.
    """

    def __init__(
        self,
        run: Callable[..., AbstractAsyncContextManager[Engine]],
        is_alive: Callable[[Engine], bool] = lambda _: True,
    ) -> None:
        self._run = run
        self._is_alive = is_alive
        self._alive: dict[str, tuple[Engine, AsyncExitStack]] = {}
        """The engines by task as JSON, in the order of their last use."""
        self._users: dict[str, str] = {}
        """The test that has used the engine of each task last."""

    async def engine(self, task: UnitTask[Any, Any]) -> Engine:
        """Returns the engine of a task. A test may use two engines at once. Fails if a test has ended the engine."""
        key = task.executor_spec().model_dump_json()
        engine, running = self._alive.pop(key) if key in self._alive else await self._start(task)
        if not self._is_alive(engine):
            await running.aclose()
            user = self._users.get(key, "it started")
            pytest.fail(f"the engine has ended since {user}: a test that ends an engine has to start another one")
        self._alive[key] = engine, running
        self._users[key] = os.environ["PYTEST_CURRENT_TEST"]
        return engine

    async def close(self) -> None:
        """Ends all engines."""
        while self._alive:
            await self._end_oldest()

    async def _start(self, task: UnitTask[Any, Any]) -> tuple[Engine, AsyncExitStack]:
        if len(self._alive) == MAX_ALIVE:
            await self._end_oldest()
        running = AsyncExitStack()
        return await running.enter_async_context(self._run(task)), running

    async def _end_oldest(self) -> None:
        _, running = self._alive.pop(next(iter(self._alive)))
        await running.aclose()
