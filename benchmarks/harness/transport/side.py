"""A producing or consuming process of the benchmark.

The process executes commands from its standard input, a JSON object per line.

It uses the system's monotonic clock, which all processes of a machine share, even across network namespaces.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import uvloop

from cornserve.instance_secret import KEY_BYTES, InstanceSecret
from cornserve.pull_protocol import PullProtocol
from cornserve.transport import LostError, TensorId, Transport
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionListener

POLL_SECONDS = 0.001
REQUEST = "benchmark"

_LEASE_SECONDS = 3600.0
"""Long, because the baselines block the event loop for seconds."""
_STARTED = struct.Struct("<q")
_ENDED = 2**31
"""An invocation that ended without output."""

CREDENTIALS = ConnectionCredentials(InstanceSecret(bytes(KEY_BYTES)))
"""Both sides run only during the benchmark."""


class TransportSide:
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
        """Produces tensors one by one. Returns the durations of the plain copies between them, in µs."""
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
        """Produces as fast as space allows."""
        for _ in range(count):
            await self._produce(time.perf_counter_ns())

    async def paced(self, count: int, rate: float) -> None:
        """Produces at random times, `rate` per second. A hop starts on time, even if another is late."""
        order = random.Random(count)
        moment = time.perf_counter_ns()
        for _ in range(count):
            moment += int(order.expovariate(rate) * 1e9)
            await _until(moment)
            await self._produce(moment)

    async def stream(self, count: int, is_burst: bool) -> None:
        """Produces the chunks of one stream: one by one, or as fast as the consumer reads."""
        production = self._transport.produce(REQUEST, self._invocations, 0, arrived_us=self._invocations)
        self._invocations += 1
        writer = production.stream("tensor")
        for _ in range(count):
            started = time.perf_counter_ns()
            slot = await writer.allocate(self._nbytes)
            slot.buffer[:] = self._own
            slot.publish("uint8", (self._nbytes,), _STARTED.pack(started))
            await asyncio.sleep(0)
            while not is_burst and self._held():
                await asyncio.sleep(POLL_SECONDS)
        writer.close()
        while self._held():
            await asyncio.sleep(POLL_SECONDS)
        production.release()

    async def consume(self, endpoint: str, count: int, is_copied: bool) -> dict[str, Any]:
        """Returns the durations from the producer's call to a readable view, or to a private copy, in µs."""
        first, self._invocations = self._invocations, self._invocations + count
        reads = (self._read(endpoint, invocation, is_copied) for invocation in range(first, first + count))
        reading = [asyncio.create_task(read) for read in reads]
        await self._report_subscriptions(endpoint)
        return _measured(await asyncio.gather(*reading))

    async def consume_stream(self, endpoint: str) -> dict[str, Any]:
        """Returns the durations from the producer's call to a readable view of each chunk of a stream, in µs."""
        reading = asyncio.create_task(self._read_stream(endpoint, self._invocations))
        self._invocations += 1
        await self._report_subscriptions(endpoint)
        return _measured(await reading)

    async def _report_subscriptions(self, endpoint: str) -> None:
        """Reports when the subscriptions have arrived at the producer."""
        await asyncio.sleep(0)
        with suppress(LostError):  # the response shows that the earlier subscriptions have arrived
            await self._read(endpoint, _ENDED, False)
        print_json("subscribed")

    async def _read_stream(self, endpoint: str, invocation: int) -> list[tuple[int, int]]:
        moments = []
        async for chunk in self._transport.consume_stream(TensorId(endpoint, REQUEST, invocation, 0, "tensor")):
            arrived = time.perf_counter_ns()
            (started,) = _STARTED.unpack(chunk.metadata)
            moments.append((started, arrived))
        return moments

    async def cpu_seconds(self) -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    async def pickled(self, path: str, count: int) -> None:
        """Produces for the baseline: a segment for each message, announced by a pickled tuple."""
        with Listener(path) as listener:
            print_json("listening")
            with listener.accept() as connection:
                for _ in range(count):
                    self._send_pickled(connection)

    async def unpickled(self, path: str, count: int) -> list[float]:
        """Consumes for the baseline. Returns durations in µs."""
        with Client(path) as connection:
            return [self._receive_pickled(connection) for _ in range(count)]

    async def sent(self, count: int) -> None:
        """Sends over a plain socket."""
        with socket.create_server((self._host, 0)) as listener:
            print_json(listener.getsockname()[1])
            connection, _ = listener.accept()
            with connection:
                for _ in range(count):
                    connection.recv(1)
                    connection.sendall(self._own)

    async def fetched(self, host: str, port: int, count: int) -> list[float]:
        """Requests and receives over a plain socket. Returns the durations in µs."""
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
        await asyncio.sleep(0)  # sends the announcement before the next copy

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
        resource_tracker.unregister(f"/{name}", "shared_memory")  # the producer unlinks it
        connection.send(None)
        return float(arrived - started) / 1e3


def _measured(moments: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Returns the hops, given the start and the arrival of each."""
    return {
        "hops": [(arrived - started) / 1e3 for started, arrived in moments],
        "seconds": (max(arrived for _, arrived in moments) - min(started for started, _ in moments)) / 1e9,
    }


async def _until(moment: int) -> None:
    """Waits more precisely than the event loop's timer, which is late by up to a millisecond."""
    await asyncio.sleep(max(0, moment - time.perf_counter_ns() - 2_000_000) / 1e9)
    while time.perf_counter_ns() < moment:
        await asyncio.sleep(0)


def touched(nbytes: int) -> memoryview:
    """Returns private, page-aligned memory whose pages have all been touched."""
    memory = memoryview(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    step = 1 << 20
    for start in range(0, nbytes, step):
        memory[start : start + step] = b"\1" * min(step, nbytes - start)
    return memory


def print_json(value: Any) -> None:
    print(json.dumps(value), flush=True)


def _held(transport: Transport) -> Callable[[], float]:
    def held() -> float:
        slab = next(metric for metric in transport.metrics() if metric.name == "cornserve_transport_slab_bytes")
        return next(sample.value for sample in slab.samples if sample.labels["state"] == "held")

    return held


async def main(directory: Path, host: str, nbytes: int, slab_bytes: int, protocol: PullProtocol) -> None:
    transport = Transport(
        directory,
        CREDENTIALS,
        slab_bytes=slab_bytes,
        request_bytes=nbytes,
        lease_seconds=_LEASE_SECONDS,
        protocol=protocol,
    )
    listener = ConnectionListener(await transport.start(), CREDENTIALS)
    endpoint = await listener.listen(f"{host}:0")
    side = TransportSide(transport, host, nbytes)
    print_json(endpoint)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        print_json(await getattr(side, command.pop("command"))(**command))
    await listener.close()
    await transport.stop()


if __name__ == "__main__":
    directory, host, nbytes, slab_bytes, protocol = sys.argv[1:]
    uvloop.run(main(Path(directory), host, int(nbytes), int(slab_bytes), PullProtocol(protocol)))
