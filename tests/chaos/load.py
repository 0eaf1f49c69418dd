"""Closed-loop clients that record the outcome of each request."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

HANG_SECONDS = 10.0
"""The time after its deadline at which a request counts as hung."""


@dataclass(frozen=True, slots=True)
class ChaosRequest:
    app: str
    body: dict[str, Any]
    stream: bool
    expected: tuple[str, ...] = ()
    """The correct texts. If empty, the text is not checked."""
    continues: bool = True
    timeout: float = 30.0


@dataclass(slots=True)
class Outcome:
    request: ChaosRequest
    started: float
    ended: float = 0.0
    status: int | None = None
    items: list[Any] = field(default_factory=list)
    result: dict[str, Any] | None = None
    """The complete response."""
    error: dict[str, Any] | None = None
    refused: bool = False
    """The gateway did not accept the connection."""
    broken: bool = False
    """The connection broke before the response was complete."""
    hung: bool = False

    @property
    def is_complete(self) -> bool:
        return self.result is not None

    @property
    def text(self) -> str:
        text: str = self.result["text"] if self.result is not None else ""
        return text

    @property
    def streamed(self) -> str:
        """The text so far, joined from the stream's words or chunks."""
        words = [item for item in self.items if isinstance(item, str)]
        return " ".join(words) if words else "".join(item["text"] for item in self.items)


class LoadClients:
    """Runs `clients` clients until the block of `running` ends.

    Args:
        requests: makes the next request, given its number.
    """

    def __init__(self, url: str, requests: Callable[[int], ChaosRequest], *, clients: int) -> None:
        self.outcomes: list[Outcome] = []
        self._url = url
        self._requests = requests
        self._clients = clients
        self._numbers = itertools.count()
        self._stop = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the clients. Leaving the block waits for the requests in flight, which all have deadlines."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
            for _ in range(self._clients):
                tasks.create_task(self._client(session))
            try:
                yield
            finally:
                self._stop.set()

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._stop.is_set():
            request = self._requests(next(self._numbers))
            while not (await self._send(session, request)).status and not self._stop.is_set():
                await asyncio.sleep(0.1)  # The gateway was killed, so the client retries.

    async def _send(self, session: aiohttp.ClientSession, request: ChaosRequest) -> Outcome:
        outcome = await send(session, self._url, request, started=asyncio.get_running_loop().time())
        self.outcomes.append(outcome)
        return outcome


async def send(session: aiohttp.ClientSession, url: str, request: ChaosRequest, *, started: float) -> Outcome:
    """Returns the outcome of a request to the gateway at `url`.

    Args:
        started: the start of its latency, by the event loop's clock.
    """
    outcome = Outcome(request, started)
    try:
        async with asyncio.timeout(request.timeout + HANG_SECONDS):
            await _exchange(session, url, request, outcome)
    except TimeoutError:
        outcome.hung = True
    except aiohttp.ClientConnectorError:
        outcome.refused = True
    except (aiohttp.ClientError, ConnectionError):
        outcome.broken = True
    outcome.ended = asyncio.get_running_loop().time()
    return outcome


async def _exchange(session: aiohttp.ClientSession, url: str, request: ChaosRequest, outcome: Outcome) -> None:
    headers = {"x-request-timeout": str(request.timeout)}
    if request.stream:
        headers["accept"] = "text/event-stream"
    async with session.post(f"{url}/v1/apps/{request.app}/invoke", json=request.body, headers=headers) as response:
        outcome.status = response.status
        if response.status != 200:
            outcome.error = (await response.json())["error"]
        elif not request.stream:
            outcome.result = await response.json()
        else:
            async for event, data in _events(response.content):
                _record_event(outcome, event, data)


def _record_event(outcome: Outcome, event: str, data: dict[str, Any]) -> None:
    match event:
        case "item":
            outcome.items.append(data["item"])
        case "result":
            outcome.result = data
        case "error":
            outcome.error = data["error"]


async def _events(lines: aiohttp.StreamReader) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    event = ""
    async for line in lines:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            yield event, json.loads(value)
