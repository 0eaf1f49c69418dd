"""Continuous requests to the app `caption`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx

from tests.waiting import until


class Traffic:
    """Sends requests in equal intervals, at a rate and with a mix that change.

    Args:
        requests: the requests that are repeated.
    """

    def __init__(self, rate: float, requests: Sequence[Mapping[str, Any]]) -> None:
        self.rate = rate
        self.requests = requests
        self.responses = Counter[str]()

    @asynccontextmanager
    async def running(self, url: str) -> AsyncIterator[None]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client, asyncio.TaskGroup() as requests:
            sending = asyncio.create_task(self._send(client, requests))
            try:
                yield
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, client: httpx.AsyncClient, requests: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        next_at, number = clock(), 0
        while True:
            requests.create_task(self._request(client, self.requests[number % len(self.requests)]))
            number, next_at = number + 1, max(next_at + 1 / self.rate, clock())  # without bursts
            await asyncio.sleep(next_at - clock())

    async def _request(self, client: httpx.AsyncClient, request: Mapping[str, Any]) -> None:
        try:
            response = await client.post("/v1/apps/caption/invoke", json=request)
            self.responses["ok" if response.status_code == 200 else response.text] += 1
        except httpx.HTTPError as error:
            self.responses[repr(error)] += 1

    async def wait(self, requests: int) -> None:
        """Waits until this number of further requests has been answered."""
        before = self.responses.total()
        await until(lambda: self.responses.total() >= before + requests)
