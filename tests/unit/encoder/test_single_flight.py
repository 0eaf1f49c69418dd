from __future__ import annotations

import asyncio

import pytest

from cornserve_executors.encoder.single_flight import SingleFlight
from tests.waiting import until


class Computation:
    """Returns the result of `ready` when that is set, and counts its calls."""

    def __init__(self) -> None:
        self.started = 0
        self.cancelled = 0
        self.ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> str:
        self.started += 1
        try:
            return await asyncio.shield(self.ready)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def join(flight: SingleFlight[str], computation: Computation, leave: asyncio.Event | None = None) -> str:
    """Returns the result, and uses it until `leave` is set."""
    async with flight.join("key", computation.run) as result:
        if leave is not None:
            await leave.wait()
        return result


async def test_concurrent_callers_share_the_result() -> None:
    flight, computation = SingleFlight[str](), Computation()
    callers = [asyncio.create_task(join(flight, computation)) for _ in range(3)]
    await until(lambda: computation.started > 0)
    computation.ready.set_result("result")

    assert await asyncio.gather(*callers) == ["result"] * 3
    assert computation.started == 1


async def test_a_result_in_use_is_shared() -> None:
    flight, computation, leave = SingleFlight[str](), Computation(), asyncio.Event()
    computation.ready.set_result("result")
    slow = asyncio.create_task(join(flight, computation, leave))
    await until(lambda: computation.started > 0)

    assert await join(flight, computation) == "result"
    assert computation.started == 1

    leave.set()
    assert await slow == "result"
    assert "key" not in flight


async def test_a_later_caller_starts_again() -> None:
    flight, computation = SingleFlight[str](), Computation()
    computation.ready.set_result("result")

    await join(flight, computation)
    await join(flight, computation)

    assert computation.started == 2


async def test_cancelling_the_first_caller_does_not_affect_the_others() -> None:
    flight, computation = SingleFlight[str](), Computation()
    first = asyncio.create_task(join(flight, computation))
    other = asyncio.create_task(join(flight, computation))
    await until(lambda: computation.started > 0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    computation.ready.set_result("result")

    assert await other == "result"


async def test_work_without_callers_is_cancelled_and_can_be_started_again() -> None:
    flight, computation = SingleFlight[str](), Computation()
    callers = [asyncio.create_task(join(flight, computation)) for _ in range(2)]
    await until(lambda: computation.started > 0)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    assert "key" not in flight

    computation.ready.set_result("result")
    assert await join(flight, computation) == "result"
    assert computation.started == 2
    assert computation.cancelled == 1


async def test_all_callers_receive_an_error() -> None:
    flight, computation = SingleFlight[str](), Computation()
    callers = [asyncio.create_task(join(flight, computation)) for _ in range(2)]
    await until(lambda: computation.started > 0)
    computation.ready.set_exception(ValueError("failed"))

    for caller in callers:
        with pytest.raises(ValueError, match="failed"):
            await caller
