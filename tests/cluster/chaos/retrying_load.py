"""Clients that send requests to gateways in pods, and repeat failed ones as the `openai` client does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from tests.chaos.load import ChaosRequest, Outcome, send

MAX_TRIES = 3
"""The number of tries of the `openai` client with its default settings."""
RETRIED_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504})
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RetriedOutcome:
    """A request with all of its tries."""

    tries: tuple[Outcome, ...]

    @property
    def is_complete(self) -> bool:
        last = self.tries[-1]
        return last.is_complete and last.text in (last.request.expected or (last.text,))

    @property
    def is_lost_stream(self) -> bool:
        """Whether it is a stream whose executor died after it had begun, and which no other executor can continue."""
        last = self.tries[-1]
        code = (last.error or {}).get("code")
        return code == "executor_died" and bool(last.items) and not last.request.continues

    @property
    def seconds(self) -> float:
        return self.tries[-1].ended - self.tries[0].started

    def describe(self) -> str:
        last = self.tries[-1]
        reasons = [str(outcome.error or _transport_failure(outcome)) for outcome in self.tries]
        return f"{last.request.app} after {self.seconds:.1f} s, streamed={last.request.stream}: {'; '.join(reasons)}"


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Counts of the requests of all clients."""

    requests: int
    retried: int
    """Complete requests that needed more than one try."""
    slowest: float
    """Seconds of the longest complete request, with its repetitions."""
    lost_streams: int
    failures: tuple[str, ...]
    """The other requests that are not complete."""


class RetryingClients:
    """Sends requests during the block of `running` to the addresses in turn, over a new connection each.

    Args:
        requests: makes the next request, given its number.
        clients: the most requests in flight.
        rate: the requests per second. By default, each client sends the next one when the last one has ended.
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key: str,
        requests: Callable[[int], ChaosRequest],
        *,
        clients: int,
        rate: float | None = None,
    ) -> None:
        self._outcomes: list[RetriedOutcome] = []
        self._urls = itertools.cycle(urls)
        self._headers = {"authorization": f"Bearer {api_key}"}
        self._requests = requests
        self._clients = clients
        self._rate = rate
        self._began = 0.0
        self._numbers = itertools.count()
        self._stop = asyncio.Event()
        self._progress = asyncio.Condition()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the clients. Leaving the block waits for the requests in flight, which all have deadlines."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        self._began = asyncio.get_running_loop().time()
        async with (
            aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=timeout) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(self._clients):
                tasks.create_task(self._client(session))
            try:
                yield
            finally:
                self._stop.set()

    async def wait_for_requests(self, count: int) -> None:
        """Waits until `count` more requests have ended."""
        wanted = len(self._outcomes) + count
        async with self._progress:
            await self._progress.wait_for(lambda: len(self._outcomes) >= wanted)

    async def wait_for_seconds(self, seconds: float) -> None:
        """Waits until the clients have sent requests for this time."""
        end = asyncio.get_running_loop().time() + seconds
        async with self._progress:
            await self._progress.wait_for(lambda: asyncio.get_running_loop().time() >= end)

    def summary(self) -> LoadSummary:
        complete = [outcome for outcome in self._outcomes if outcome.is_complete]
        failed = [outcome for outcome in self._outcomes if not outcome.is_complete and not outcome.is_lost_stream]
        return LoadSummary(
            requests=len(self._outcomes),
            retried=sum(len(outcome.tries) > 1 for outcome in complete),
            slowest=max((outcome.seconds for outcome in complete), default=0),
            lost_streams=sum(outcome.is_lost_stream for outcome in self._outcomes),
            failures=tuple(outcome.describe() for outcome in failed),
        )

    def repeated(self) -> list[str]:
        """Returns the descriptions of the requests that failed or needed more than one try."""
        found = (outcome for outcome in self._outcomes if not outcome.is_complete or len(outcome.tries) > 1)
        return [outcome.describe() for outcome in found]

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._stop.is_set():
            number = next(self._numbers)
            if self._rate is not None and await self._ends_before(self._began + number / self._rate):
                return
            self._outcomes.append(await self._send(session, self._requests(number)))
            async with self._progress:
                self._progress.notify_all()

    async def _ends_before(self, time: float) -> bool:
        """Waits until this time of the event loop. Returns whether the block of `running` has ended before."""
        try:
            async with asyncio.timeout_at(time):
                return await self._stop.wait()
        except TimeoutError:
            return False

    async def _send(self, session: aiohttp.ClientSession, request: ChaosRequest) -> RetriedOutcome:
        loop = asyncio.get_running_loop()
        tries: list[Outcome] = []
        while True:
            tries.append(await send(session, next(self._urls), request, started=loop.time()))
            if len(tries) == MAX_TRIES or not _is_retried(tries[-1]):
                return RetriedOutcome(tuple(tries))
            await asyncio.sleep(0.5 * 2 ** (len(tries) - 1))


def _is_retried(outcome: Outcome) -> bool:
    """Whether the `openai` client repeats the request. It does not repeat a stream that has begun."""
    if outcome.status is None or (outcome.broken and not outcome.request.stream):
        return True
    return outcome.status in RETRIED_STATUSES


def _transport_failure(outcome: Outcome) -> str:
    for name in ("hung", "refused", "broken"):
        if getattr(outcome, name):
            return name
    return "complete" if outcome.is_complete else f"status {outcome.status}, incomplete"
