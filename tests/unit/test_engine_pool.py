"""The pool of engines that tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cornserve.task import UnitTask
from cornserve_echo import EchoTask
from tests.integration.engine_pool import EnginePool

A, B, C = (EchoTask(prefix=prefix) for prefix in "abc")


class Engines:
    """Counts the engines that have started, and knows those that are alive."""

    def __init__(self) -> None:
        self.alive: list[UnitTask[Any, Any]] = []
        self.started = 0

    @asynccontextmanager
    async def run(self, task: UnitTask[Any, Any]) -> AsyncIterator[int]:
        self.alive.append(task)
        self.started += 1
        yield self.started
        self.alive.remove(task)


async def test_an_engine_is_shared_by_the_tests_with_its_model_and_options() -> None:
    engines = Engines()
    pool = EnginePool(engines.run)

    numbers = [await pool.engine(task) for task in (A, B, EchoTask(prefix="a"), B)]

    assert numbers == [1, 2, 1, 2]
    await pool.close()
    assert engines.alive == []


async def test_a_test_that_has_ended_a_shared_engine_is_named_and_the_next_one_gets_another() -> None:
    engines, dead = Engines(), set[int]()
    pool = EnginePool(engines.run, lambda number: number not in dead)
    dead.add(await pool.engine(A))

    with pytest.raises(pytest.fail.Exception, match=r"the engine has ended since .*test_engine_pool\.py::"):
        await pool.engine(A)

    assert await pool.engine(A) == await pool.engine(A) == 2
    assert engines.alive == [A]
    await pool.close()


async def test_a_third_engine_ends_the_one_that_was_not_used_for_longest() -> None:
    engines = Engines()
    pool = EnginePool(engines.run)

    for task in (A, B, A, C):
        await pool.engine(task)

    assert engines.alive == [A, C]
    assert await pool.engine(B) == 4
    assert engines.alive == [C, B]
    await pool.close()
