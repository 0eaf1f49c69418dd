from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cornserve.pull_protocol import PullProtocol
from tests.integration.transport.worker import MIB

LEASE_SECONDS = 1.0

StartWorker = Callable[..., Awaitable["WorkerClient"]]


class WorkerClient:
    """Sends commands to a process that runs worker.py."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.endpoint = ""

    async def call(self, command: str, **arguments: Any) -> Any:
        await self.send(command, **arguments)
        return await self.read_response()

    async def send(self, command: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
        await self.process.stdin.drain()

    async def read_response(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await self.process.stdout.readline())

    async def metric_equals(self, metric: str, value: float) -> bool:
        return bool((await self.call("metrics"))[metric] == value)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cornserve-test-") as directory:
        yield Path(directory)


@pytest.fixture
async def start_worker(shared_memory: Path) -> AsyncIterator[StartWorker]:
    async with AsyncExitStack() as stack:

        async def start(directory: Path = shared_memory, slab_bytes: int = 4 * MIB, **options: Any) -> WorkerClient:
            return await stack.enter_async_context(running_worker(directory, slab_bytes, **options))

        yield start


@asynccontextmanager
async def running_worker(
    directory: Path,
    slab_bytes: int,
    *,
    prefix: Sequence[str] = (),
    reap_seconds: float = 60,
    idle_seconds: float = 60,
    protocol: PullProtocol = PullProtocol.AUTO,
    host: str = "127.0.0.1",
) -> AsyncIterator[WorkerClient]:
    """Runs worker.py. `prefix` is a command that runs the rest of its arguments as a command."""
    arguments = (directory, slab_bytes, LEASE_SECONDS, reap_seconds, idle_seconds, protocol, host)
    process = await asyncio.create_subprocess_exec(
        *(*prefix, sys.executable, "-m", "tests.integration.transport.worker", *map(str, arguments)),
        stdin=PIPE,
        stdout=PIPE,
    )
    worker = WorkerClient(process)
    worker.endpoint = await worker.read_response()
    try:
        yield worker
    finally:
        if process.returncode is None:
            worker.resume()
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(60):
                await process.wait()
