"""Connections to a producer that are used again."""

from __future__ import annotations

import asyncio

import pytest

from cornserve.transport.pull.pool import ConnectionPool


class FakeConnection:
    def __init__(self) -> None:
        self.is_closed = False

    def abort(self) -> None:
        self.is_closed = True


class SlowConnector:
    """Connects when the test permits it."""

    def __init__(self) -> None:
        self.attempts: list[asyncio.Future[FakeConnection]] = []
        self.pool = ConnectionPool(self._connect)

    async def _connect(self) -> FakeConnection:
        self.attempts.append(asyncio.get_running_loop().create_future())
        return await self.attempts[-1]

    async def use(self) -> FakeConnection:
        async with self.pool.connection() as connection:
            return connection

    async def cancel_while_connecting(self) -> None:
        using = asyncio.create_task(self.use())
        for _ in range(3):
            await asyncio.sleep(0)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using


async def test_the_next_pull_waits_for_the_connection_of_a_cancelled_one() -> None:
    connector = SlowConnector()
    await connector.cancel_while_connecting()
    using = asyncio.create_task(connector.use())
    await asyncio.sleep(0)

    connector.attempts[0].set_result(connection := FakeConnection())

    assert await using is connection
    assert await connector.use() is connection
    assert len(connector.attempts) == 1
    assert not connection.is_closed


async def test_a_connection_that_is_complete_after_its_pull_was_cancelled_is_used() -> None:
    connector = SlowConnector()
    await connector.cancel_while_connecting()
    connector.attempts[0].set_result(connection := FakeConnection())
    for _ in range(3):
        await asyncio.sleep(0)

    assert await connector.use() is connection


async def test_cancelled_pulls_do_not_add_connections() -> None:
    connector = SlowConnector()
    for _ in range(12):
        await connector.cancel_while_connecting()

    assert len(connector.attempts) == 1


async def test_a_connection_that_fails_after_its_pull_was_cancelled_is_tried_again() -> None:
    connector = SlowConnector()
    await connector.cancel_while_connecting()
    connector.attempts[0].set_exception(OSError("refused"))
    for _ in range(3):
        await asyncio.sleep(0)
    using = asyncio.create_task(connector.use())
    for _ in range(3):
        await asyncio.sleep(0)

    connector.attempts[1].set_result(connection := FakeConnection())

    assert await using is connection


async def test_a_closed_pool_stops_connecting() -> None:
    connector = SlowConnector()
    await connector.cancel_while_connecting()

    connector.pool.close()
    await connector.pool.wait_closed()

    assert connector.attempts[0].cancelled()
