"""Clients that send requests at fixed times, so that a stall delays all requests that arrive during it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from tests.chaos.load import ChaosRequest, Outcome, send


class SteadyLoad:
    """Sends `rate` requests per second during the block of `running`, whether or not earlier ones have ended.

    The latency of a request counts from the time at which it was due.

    Args:
        request: makes a request, given its number.
    """

    def __init__(self, url: str, request: Callable[[int], ChaosRequest], *, rate: float) -> None:
        self.outcomes: list[Outcome] = []
        self._url = url
        self._request = request
        self._interval = 1 / rate
        self._stop = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the load. Leaving the block waits for the requests in flight, which all have deadlines."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send_all(session, tasks))
            try:
                yield
            finally:
                self._stop.set()
                await sending

    @property
    def latencies(self) -> list[float]:
        """Seconds from the time at which each request was due until its response."""
        return [outcome.ended - outcome.started for outcome in self.outcomes]

    async def _send_all(self, session: aiohttp.ClientSession, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        start, number = loop.time(), 0
        while not self._stop.is_set():
            due = start + number * self._interval
            await asyncio.sleep(due - loop.time())
            tasks.create_task(self._send_one(session, number, due))
            number += 1

    async def _send_one(self, session: aiohttp.ClientSession, number: int, due: float) -> None:
        self.outcomes.append(await send(session, self._url, self._request(number), started=due))
