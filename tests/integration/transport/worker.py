"""A process with a transport. It executes commands from its standard input, a JSON object per line."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from cornserve.pull_protocol import PullProtocol
from cornserve.transport import Production, TensorId, TensorView, Transport, TransportError
from cornserve.wire.listener import ConnectionListener
from tests.credentials import CREDENTIALS
from tests.tcp_sockets import tcp_sockets

MIB = 1 << 20
PAUSE = 0.004
"""Limit for the time between publishing and revoking, in seconds: about the time that a consumer needs to read."""
REQUEST = "request"
SO_MAX_PACING_RATE = 47
"""Linux's limit for the bytes that a socket sends in a second."""


class TransportWorker:
    def __init__(self, transport: Transport, directory: Path) -> None:
        self._transport = transport
        self._ballast = directory / "ballast"
        self._productions: dict[int, Production] = {}
        self._held = AsyncExitStack()
        self._views: dict[str, TensorView] = {}

    async def begin(self, invocation: int) -> None:
        self._productions[invocation] = self._transport.produce(REQUEST, invocation, 0, arrived_us=invocation)

    async def publish(self, invocation: int, output: str, nbytes: int, fill: int) -> str:
        """Returns the error, if any."""
        try:
            slot = await self._productions[invocation].allocate(output, nbytes)
        except TransportError as error:
            return f"{type(error).__name__}: {error}"
        slot.buffer[:] = bytes([fill]) * nbytes
        slot.publish("uint8", (nbytes,), bytes([fill]))
        return ""

    async def allocate(self, invocation: int, output: str, nbytes: int) -> None:
        """Allocates a slot that is never published."""
        await self._productions[invocation].allocate(output, nbytes)

    async def release(self, invocation: int) -> None:
        self._productions.pop(invocation).release()

    async def revoke(self, invocation: int) -> None:
        self._productions.pop(invocation).revoke()

    async def churn(self, count: int, nbytes: int, seed: int, pause: float = PAUSE) -> None:
        """Publishes and revokes tensors, so that the same memory is reused again and again.

        Args:
            pause: the longest time between both, in seconds.
        """
        order = random.Random(seed)
        for invocation in range(count):
            await self.begin(invocation)
            await self.publish(invocation, "embeddings", nbytes, order.randrange(256))
            await asyncio.sleep(order.random() * pause)
            self._productions.pop(invocation).revoke()

    async def fill_memory(self, free: int) -> None:
        """Fills the file system of the directory, but for `free` bytes."""
        with self._ballast.open("wb") as file:
            system = os.statvfs(self._ballast)
            os.posix_fallocate(file.fileno(), 0, system.f_bavail * system.f_frsize - free)

    async def free_memory(self) -> None:
        self._ballast.unlink()

    async def hang(self, until: str) -> None:
        """Blocks all tasks of the process until a file exists."""
        print(json.dumps("hanging"), flush=True)
        _block_until(Path(until))

    async def hold(self, endpoint: str, invocation: int, output: str) -> str:
        """Consumes a tensor and holds it. Returns the error, if any."""
        try:
            tensor_id = TensorId(endpoint, REQUEST, invocation, 0, output)
            tensor = await self._held.enter_async_context(self._transport.consume(tensor_id))
        except TransportError as error:
            return f"{type(error).__name__}: {error}"
        self._views[output] = tensor
        return ""

    async def read(self, output: str) -> str:
        """Returns the set of bytes in a held tensor as hexadecimal digits, or the error."""
        data = bytes(self._views[output].view)
        try:
            self._views[output].check()
        except TransportError as error:
            return f"{type(error).__name__}: {error}"
        return bytes(set(data)).hex()

    async def end_holds(self) -> None:
        """Ends the leases on all held tensors."""
        self._views.clear()
        await self._held.aclose()

    async def limit_rate(self, bytes_per_second: int) -> None:
        """Limits the rate at which each open TCP connection sends, also those of libraries."""
        for connection in tcp_sockets():
            with connection:
                connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_second)

    async def metrics(self) -> dict[str, float]:
        samples = (sample for metric in self._transport.metrics() for sample in metric.samples)
        return {sample.name + _labels(sample.labels): sample.value for sample in samples}


def _block_until(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


async def main(
    directory: Path,
    slab_bytes: int,
    lease_seconds: float,
    reap_seconds: float,
    idle_seconds: float,
    protocol: PullProtocol,
    host: str,
) -> None:
    transport = Transport(
        directory,
        CREDENTIALS,
        slab_bytes=slab_bytes,
        request_bytes=slab_bytes // 2,
        lease_seconds=lease_seconds,
        reap_seconds=reap_seconds,
        idle_seconds=idle_seconds,
        protocol=protocol,
    )
    listener = ConnectionListener(await transport.start(), CREDENTIALS)
    print(json.dumps(await listener.listen(f"{host}:0")), flush=True)
    worker = TransportWorker(transport, directory)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        execute: Callable[..., Awaitable[Any]] = getattr(worker, command.pop("command"))
        print(json.dumps(await execute(**command)), flush=True)
    await listener.close()
    await transport.stop()


if __name__ == "__main__":
    directory, slab_bytes, *seconds, protocol, host = sys.argv[1:]
    lease, reap, idle = map(float, seconds)
    uvloop.run(main(Path(directory), int(slab_bytes), lease, reap, idle, PullProtocol(protocol), host))
