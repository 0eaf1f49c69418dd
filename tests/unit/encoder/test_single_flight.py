from __future__ import annotations

import asyncio

import pytest

from cornserve_executors.encoder.single_flight import SingleFlight
from tests.waiting import until


class Kitchen:
    """Makes something when told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.broken_off = 0
        self.ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def make(self) -> str:
        self.begun += 1
        try:
            return await asyncio.shield(self.ready)
        except asyncio.CancelledError:
            self.broken_off += 1
            raise


async def board(flights: SingleFlight[str], kitchen: Kitchen, until_told: asyncio.Event | None = None) -> str:
    async with flights.join("soup", kitchen.make) as soup:
        if until_told is not None:
            await until_told.wait()
        return soup


async def test_who_asks_at_the_same_time_shares_the_result() -> None:
    flights, kitchen = SingleFlight[str](), Kitchen()
    guests = [asyncio.create_task(board(flights, kitchen)) for _ in range(3)]
    await until(lambda: kitchen.begun > 0)
    kitchen.ready.set_result("hot")

    assert await asyncio.gather(*guests) == ["hot"] * 3
    assert kitchen.begun == 1


async def test_what_is_still_used_is_shared_too() -> None:
    flights, kitchen, told = SingleFlight[str](), Kitchen(), asyncio.Event()
    kitchen.ready.set_result("hot")
    slow = asyncio.create_task(board(flights, kitchen, told))
    await until(lambda: kitchen.begun > 0)

    assert await board(flights, kitchen) == "hot"
    assert kitchen.begun == 1

    told.set()
    assert await slow == "hot"
    assert "soup" not in flights


async def test_who_comes_later_begins_anew() -> None:
    flights, kitchen = SingleFlight[str](), Kitchen()
    kitchen.ready.set_result("hot")

    await board(flights, kitchen)
    await board(flights, kitchen)

    assert kitchen.begun == 2


async def test_the_first_may_leave_without_harm_to_the_others() -> None:
    flights, kitchen = SingleFlight[str](), Kitchen()
    first = asyncio.create_task(board(flights, kitchen))
    other = asyncio.create_task(board(flights, kitchen))
    await until(lambda: kitchen.begun > 0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    kitchen.ready.set_result("hot")

    assert await other == "hot"


async def test_what_nobody_waits_for_is_broken_off_and_can_be_asked_for_again() -> None:
    flights, kitchen = SingleFlight[str](), Kitchen()
    guests = [asyncio.create_task(board(flights, kitchen)) for _ in range(2)]
    await until(lambda: kitchen.begun > 0)
    for guest in guests:
        guest.cancel()
    await asyncio.gather(*guests, return_exceptions=True)
    assert "soup" not in flights

    kitchen.ready.set_result("hot")
    assert await board(flights, kitchen) == "hot"
    assert kitchen.begun == 2
    assert kitchen.broken_off == 1


async def test_a_failure_is_everybodys() -> None:
    flights, kitchen = SingleFlight[str](), Kitchen()
    guests = [asyncio.create_task(board(flights, kitchen)) for _ in range(2)]
    await until(lambda: kitchen.begun > 0)
    kitchen.ready.set_exception(ValueError("burnt"))

    for guest in guests:
        with pytest.raises(ValueError, match="burnt"):
            await guest
