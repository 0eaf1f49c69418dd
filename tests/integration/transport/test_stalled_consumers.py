"""Consumers that stop reading in the middle of a pull, by each protocol."""

from __future__ import annotations

import json
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cornserve.pull_protocol import PullProtocol
from tests.integration.transport.conftest import StartWorker
from tests.integration.transport.test_failures import HELD
from tests.integration.transport.worker import MIB, REQUEST
from tests.unit.transport.conftest import needs_extra
from tests.unit.transport.raw_peers import consuming

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("protocol", [PullProtocol.TCP, PullProtocol.UCX])]

SIZE = 32 * MIB
"""More than the buffers of the system hold for a connection."""


@asynccontextmanager
async def stalled_consumer(protocol: PullProtocol, endpoint: str, capability: bytes) -> AsyncIterator[StalledConsumer]:
    command = ("-m", "tests.integration.transport.stalled_consumer", protocol, endpoint, capability.hex(), str(SIZE))
    process = await create_subprocess_exec(sys.executable, *command, stdin=PIPE, stdout=PIPE)
    try:
        consumer = StalledConsumer(process)
        assert await consumer.read() == "stalled"
        yield consumer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class StalledConsumer:
    """The process of stalled_consumer.py."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def read(self) -> object:
        assert self._process.stdout is not None
        return json.loads(await self._process.stdout.readline())

    async def resume(self) -> set[str]:
        """Returns the different bytes that have arrived."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        counts = await self.read()
        assert isinstance(counts, dict)
        return set(counts) - {"0"}


async def test_a_consumer_that_stops_reading_receives_no_bytes_of_later_tensors(
    protocol: PullProtocol, start_worker: StartWorker
) -> None:
    producer = await start_worker(slab_bytes=2 * SIZE, protocol=needs_extra(protocol))
    await producer.call("begin", invocation=1)
    await producer.call("publish", invocation=1, output="tensor", nbytes=SIZE, fill=1)
    async with consuming(producer.endpoint) as subscriber:
        subscriber.subscribe(1, REQUEST, "tensor", invocation=1)
        capability = (await subscriber.event("tensor")).tensor.capability
    async with stalled_consumer(protocol, producer.endpoint, capability) as consumer:
        await producer.call("revoke", invocation=1)
        for invocation in (3, 2):  # The slab has space for both: the older request may use the reserve.
            await producer.call("begin", invocation=invocation)
            tensor = {"invocation": invocation, "output": "tensor", "nbytes": SIZE, "fill": invocation}
            assert await producer.call("publish", **tensor) == ""

        assert await consumer.resume() == {"1"}

    for invocation in (2, 3):
        await producer.call("release", invocation=invocation)
    assert await producer.metric_equals(HELD, 0)
