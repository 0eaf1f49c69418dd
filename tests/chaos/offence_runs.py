"""Runs an offence on an instance, and observes another app meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx2 as httpx
import psutil

from cornserve import AsyncClient, Client
from tests.chaos.apps import twice
from tests.chaos.judge import violations
from tests.chaos.load import ChaosRequest, send
from tests.chaos.offences import APP, BASELINE, TRIGGER, Offence
from tests.chaos.report import p99_ms
from tests.chaos.steady_load import SteadyLoad
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import until

RATE = 50
"""Requests per second to the other app."""

MIN_REQUESTS = 100
"""The minimum number of requests to the other app during an offence."""

SUSPENDED = "app_suspended"
"""The code of the error for requests to a suspended app."""

REQUEST_SECONDS = 60
"""The deadline of requests to the offender, which no offence must reach."""


@dataclass(frozen=True, slots=True)
class OffenderResponse:
    """A response of the offender: its status, and its error if it failed."""

    status: int | None
    error: dict[str, Any]

    @property
    def code(self) -> str | None:
        code: str | None = self.error.get("code")
        return code

    @property
    def message(self) -> str:
        return str(self.error.get("message", ""))

    @property
    def summary(self) -> str:
        return f"{self.status} `{self.code}`" if self.code else str(self.status)


@dataclass(frozen=True, slots=True)
class Observation:
    """The effects of one offence."""

    p99_ms: float
    """The latency of the other app's requests meanwhile, from the time at which they were due."""
    max_ms: float
    requests: int
    """The number of requests to the other app."""
    wrong: list[str]
    """Violations of the guarantees to the other app's clients."""
    response: OffenderResponse
    """The response to the offending request or deployment."""
    following: OffenderResponse
    """The response to the app's next request."""


class OffenceRunner:
    """Runs offences on an instance that serves another app, whose code runs three times per request."""

    def __init__(self, machine: CliInstance) -> None:
        self._machine = machine
        with Client(machine.url) as client:
            client.deploy(twice())

    def _processes(self) -> list[int]:
        """Returns the process ids of the instance."""
        return sorted(child.pid for child in psutil.Process(self._machine.pid).children(recursive=True))

    async def observe(self, offence: Offence) -> Observation:
        """Deploys the app and lets it misbehave once."""
        async with AsyncClient(self._machine.url) as client:
            await client.deploy((BASELINE if offence.at_import else offence).source)
        await self._invoke("warm up")
        load = SteadyLoad(self._machine.url, _request, rate=RATE)
        async with load.running():
            await until(lambda: bool(load.outcomes))
            response = await (self._deploy_offending(offence) if offence.at_import else self._invoke(TRIGGER))
            following = await self._invoke("a good request")
            await until(lambda: len(load.outcomes) >= MIN_REQUESTS)
        latencies = load.latencies
        return Observation(
            p99_ms=p99_ms(latencies),
            max_ms=1000 * max(latencies),
            requests=len(latencies),
            wrong=violations(load.outcomes),
            response=response,
            following=following,
        )

    async def repeat(self, times: int) -> str:
        """Repeats the offence up to this number of times. Returns the reason in `cornserve status` for which the app
        is suspended, or an empty text."""
        for _ in range(times):
            if (await self._invoke(TRIGGER)).code == SUSPENDED:
                break
        reasons = re.findall("^suspended: (.*)$", self._machine.do("status", APP), re.MULTILINE)
        return str(reasons[0]) if reasons else ""

    @asynccontextmanager
    async def app(self) -> AsyncIterator[None]:
        """Deletes the app at the end of the block, and waits until only the processes before it run."""
        before = self._processes()
        try:
            yield
        finally:
            async with AsyncClient(self._machine.url) as client:
                await client.delete(APP)
        await until(lambda: self._processes() == before)

    async def _deploy_offending(self, offence: Offence) -> OffenderResponse:
        async with httpx.AsyncClient(base_url=self._machine.url, timeout=REQUEST_SECONDS) as client:
            deployed = await client.put(f"/admin/v1/apps/{APP}", json={"source": {"inline": offence.source}})
            return OffenderResponse(deployed.status_code, deployed.json().get("error", {}))

    async def _invoke(self, text: str) -> OffenderResponse:
        """Sends a request for a stream, so that functions over streams run, too."""
        request = ChaosRequest(APP, {"text": text}, stream=True, timeout=REQUEST_SECONDS)
        async with aiohttp.ClientSession() as session:
            outcome = await send(session, self._machine.url, request, started=asyncio.get_running_loop().time())
        assert outcome.is_complete or outcome.error is not None, outcome
        return OffenderResponse(outcome.status, outcome.error or {})


def _request(number: int) -> ChaosRequest:
    text = f"word{number}"
    return ChaosRequest("twice", {"text": text}, stream=False, expected=(f"{text} again",))
