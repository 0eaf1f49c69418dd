"""One of the two processes: it does what it is told on its standard input, a JSON object on each line.

Clocks are the system's monotonic one, which all processes of a machine share, also in other network namespaces.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import random
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import uvloop

from cornserve.transport import LostError, TensorId, Transport
from cornserve.wire.listener import MessageListener

POLL_SECONDS = 0.001
REQUEST = "benchmark"

_NO_LEASE_ENDS = 3600.0
"""The yardsticks keep the event loop for seconds."""
_STARTED = struct.Struct("<q")
_ENDED = 2**31
"""An invocation that produced nothing."""


class Side:
    def __init__(self, transport: Transport, host: str, nbytes: int) -> None:
        self._transport = transport
        self._host = host
        self._nbytes = nbytes
        self._own = touched(nbytes)
        self._other = touched(nbytes)
        self._invocations = 0
        self._held = _held(transport)
        transport.produce(REQUEST, _ENDED, 0, arrived_us=0).release()

    async def alone(self, count: int) -> list[float]:
        """Produces one tensor after the other. Returns what a plain copy of each took, in µs."""
        copies = []
        for _ in range(count):
            await self._produce(time.perf_counter_ns())
            while self._held():
                await asyncio.sleep(POLL_SECONDS)
            started = time.perf_counter_ns()
            self._other[:] = self._own
            copies.append((time.perf_counter_ns() - started) / 1e3)
        return copies

    async def burst(self, count: int) -> None:
        """Produces as fast as there is room."""
        for _ in range(count):
            await self._produce(time.perf_counter_ns())

    async def paced(self, count: int, rate: float) -> None:
        """Produces at random moments, so many a second. A hop begins when it should, though the one before be late."""
        order = random.Random(count)
        moment = time.perf_counter_ns()
        for _ in range(count):
            moment += int(order.expovariate(rate) * 1e9)
            await _until(moment)
            await self._produce(moment)

    async def consume(self, endpoint: str, count: int, is_copied: bool) -> dict[str, Any]:
        """Waits for tensors. Returns µs from their producer's call to a readable view, or to a copy of our own."""
        first, self._invocations = self._invocations, self._invocations + count
        reads = (self._read(endpoint, invocation, is_copied) for invocation in range(first, first + count))
        reading = [asyncio.create_task(read) for read in reads]
        await asyncio.sleep(0)
        with suppress(LostError):  # is answered when what was subscribed before has arrived
            await self._read(endpoint, _ENDED, False)
        say("subscribed")
        moments = await asyncio.gather(*reading)
        return {
            "hops": [(arrived - started) / 1e3 for started, arrived in moments],
            "seconds": (max(arrived for _, arrived in moments) - min(started for started, _ in moments)) / 1e9,
        }

    async def cpu_seconds(self) -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    async def pickled(self, path: str, count: int) -> None:
        """The yardstick's producer: a segment for each message, announced by a pickled tuple."""
        with Listener(path) as listener:
            say("listening")
            with listener.accept() as connection:
                for _ in range(count):
                    self._send_pickled(connection)

    async def unpickled(self, path: str, count: int) -> list[float]:
        """The yardstick's consumer."""
        with Client(path) as connection:
            return [self._receive_pickled(connection) for _ in range(count)]

    async def sent(self, count: int) -> None:
        """Of plain sockets, the one that sends."""
        with socket.create_server((self._host, 0)) as listener:
            say(listener.getsockname()[1])
            connection, _ = listener.accept()
            with connection:
                for _ in range(count):
                    connection.recv(1)
                    connection.sendall(self._own)

    async def fetched(self, host: str, port: int, count: int) -> list[float]:
        """Of plain sockets, the one that asks and receives. µs from asking to having all of it."""
        with socket.create_connection((host, port)) as connection:
            return [self._fetch(connection) for _ in range(count)]

    def _fetch(self, connection: socket.socket) -> float:
        started = time.perf_counter_ns()
        connection.sendall(b"?")
        position = 0
        while position < self._nbytes:
            position += connection.recv_into(self._own[position:])
        return (time.perf_counter_ns() - started) / 1e3

    async def _produce(self, started: int) -> None:
        production = self._transport.produce(REQUEST, self._invocations, 0, arrived_us=self._invocations)
        self._invocations += 1
        slot = await production.allocate("tensor", self._nbytes)
        slot.buffer[:] = self._own
        slot.publish("uint8", (self._nbytes,), _STARTED.pack(started))
        production.release()
        await asyncio.sleep(0)  # so that the announcement leaves before the next copy

    async def _read(self, endpoint: str, invocation: int, is_copied: bool) -> tuple[int, int]:
        async with self._transport.consume(TensorId(endpoint, REQUEST, invocation, 0, "tensor")) as tensor:
            if is_copied:
                self._own[:] = tensor.view
                tensor.check()
            arrived = time.perf_counter_ns()
            (started,) = _STARTED.unpack(tensor.metadata)
            return started, arrived

    def _send_pickled(self, connection: Connection) -> None:
        started = time.perf_counter_ns()
        segment = SharedMemory(create=True, size=self._nbytes)
        assert segment.buf is not None
        segment.buf[: self._nbytes] = self._own
        connection.send((segment.name, "uint8", (self._nbytes,), started))
        connection.recv()
        segment.close()
        segment.unlink()

    def _receive_pickled(self, connection: Connection) -> float:
        name, _, (nbytes,), started = connection.recv()
        segment = SharedMemory(name)
        assert segment.buf is not None
        view = segment.buf[:nbytes]
        arrived = time.perf_counter_ns()
        view.release()
        segment.close()
        resource_tracker.unregister(f"/{name}", "shared_memory")  # the producer's to unlink
        connection.send(None)
        return float(arrived - started) / 1e3


async def _until(moment: int) -> None:
    """More exact than the event loop's timer, which is late by up to a millisecond."""
    await asyncio.sleep(max(0, moment - time.perf_counter_ns() - 2_000_000) / 1e9)
    while time.perf_counter_ns() < moment:
        await asyncio.sleep(0)


def touched(nbytes: int) -> memoryview:
    """Private memory, page-aligned, no page of which is touched for the first time while we measure."""
    memory = memoryview(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    step = 1 << 20
    for start in range(0, nbytes, step):
        memory[start : start + step] = b"\1" * min(step, nbytes - start)
    return memory


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


def _held(transport: Transport) -> Callable[[], float]:
    def held() -> float:
        slab = next(metric for metric in transport.metrics() if metric.name == "cornserve_transport_slab_bytes")
        return next(sample.value for sample in slab.samples if sample.labels["state"] == "held")

    return held


async def main(directory: Path, host: str, nbytes: int, slab_bytes: int) -> None:
    transport = Transport(directory, slab_bytes=slab_bytes, request_bytes=nbytes, lease_seconds=_NO_LEASE_ENDS)
    reception = MessageListener(await transport.start(host))
    endpoint = await reception.listen(f"{host}:0")
    side = Side(transport, host, nbytes)
    say(endpoint)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        say(await getattr(side, command.pop("do"))(**command))
    reception.close()
    await transport.stop()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
