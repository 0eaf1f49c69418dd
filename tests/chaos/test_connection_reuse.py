"""Clients that reuse their connections after pauses, up to almost the idle timeout of the gateway."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.chaos.apps import echo
from tests.chaos.conftest import running_instance
from tests.chaos.form import by_form, seed
from tests.chaos.report import FaultRecorder, FaultResult, p99_ms
from tests.integration.cli.cli_instance import CliInstance
from tests.unit.gateway.raw_http import RawConnection, post, raw_connection

CLIENTS = by_form(short=200, full=1000)
IDLE_SECONDS = by_form(short=10, full=75)
REQUESTS_OF_EACH = by_form(short=2, full=10)
SHORTEST_PAUSE = IDLE_SECONDS / 75
LONGEST_PAUSE = IDLE_SECONDS * 70 / 75
LATE_SECONDS = (IDLE_SECONDS - LONGEST_PAUSE) / 2
"""If the time between two requests exceeds the longest pause by this time, because the machine is busy, the connection
may have been idle for too long."""

BODY = b'{"text": "a b"}'
REQUEST = post("/v1/apps/echo/invoke", f"Content-Length: {len(BODY)}") + BODY


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CliInstance]:
    with running_instance(tmp_path / "home", "--limit", f"idle-seconds={IDLE_SECONDS}") as machine:
        machine.deploy(echo())
        yield machine


class Clients:
    def __init__(self, port: int) -> None:
        self.answered: list[float] = []
        """The seconds that each response took."""
        self.late = 0
        """Pauses that were not followed by a request, because they took too long."""
        self.ended = 0
        """Connections that the gateway has ended after the idle timeout."""
        self._port = port
        self._random = random.Random(seed())

    async def run_one(self) -> None:
        """Sends the requests of one client on one connection, then waits until the gateway ends it.

        Raises an error if a response is missing or the connection is reset.
        """
        loop = asyncio.get_running_loop()
        sent = loop.time()
        async with raw_connection(self._port) as connection:
            for _ in range(REQUESTS_OF_EACH):
                await asyncio.sleep(self._random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
                if loop.time() > sent + LONGEST_PAUSE + LATE_SECONDS:
                    self.late += 1
                    return
                sent = loop.time()
                await self._request(connection)
            async with asyncio.timeout(2 * IDLE_SECONDS + 60):
                assert await connection.reader.read() == b""
            self.ended += 1

    async def _request(self, connection: RawConnection) -> None:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        await connection.send(REQUEST)
        assert (await connection.read_response()).status == 200
        self.answered.append(loop.time() - sent)


@pytest.mark.slow
@pytest.mark.timeout(by_form(short=300, full=1200))
async def test_every_request_on_a_reused_connection_is_answered(
    machine: CliInstance, record_fault: FaultRecorder
) -> None:
    port = httpx.URL(machine.url).port
    assert port is not None
    clients = Clients(port)

    results = await asyncio.gather(*(clients.run_one() for _ in range(CLIENTS)), return_exceptions=True)

    assert [repr(result) for result in results if result is not None] == []
    assert clients.ended == CLIENTS - clients.late
    assert clients.late < CLIENTS / 2, "the machine is too busy for this test"
    count = len(clients.answered)
    outcome = f"{count:,} complete, {clients.ended:,} connections ended"
    record_fault(FaultResult("pause on a reused connection", count, count, outcome, p99_ms(clients.answered)))
