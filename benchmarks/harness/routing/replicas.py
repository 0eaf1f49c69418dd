"""Replicas of an executor with a set service time, all in one child process, and the queries for their loads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

import uvloop

from cornserve.instance_secret import InstanceSecret
from cornserve.transport import Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionListener
from cornserve_echo.stage_executor import StageExecutor
from cornserve_echo.stages import StageTask
from cornserve_executors.base.metrics import ExecutorMetrics
from cornserve_executors.base.service import ExecutorService
from cornserve_executors.base.state import ExecutorState

SLAB_BYTES = 1024 * 1024

CREDENTIALS = ConnectionCredentials(InstanceSecret(bytes(32)))

QUERY = b"?"


class ReplicaAddress(NamedTuple):
    """The addresses of a replica."""

    endpoint: str
    """Accepts invocations."""
    load_port: int
    """Responds to `QUERY` with the number of invocations in four bytes."""


class LoadServer(asyncio.Protocol):
    """Responds to queries for the load of a replica: the cheapest query that is possible."""

    def __init__(self, service: ExecutorService) -> None:
        self._service = service
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._service.load.invocations.to_bytes(4, "big") * len(data))


@contextmanager
def running_replicas(count: int, service_seconds: float) -> Iterator[list[ReplicaAddress]]:
    """Runs replicas until the end of the block."""
    spawn = get_context("spawn")
    own, other = spawn.Pipe()
    process = spawn.Process(target=_run, args=(count, service_seconds, other), daemon=True)
    process.start()
    try:
        yield own.recv()
    finally:
        own.send("end")
        process.join()


def _run(count: int, service_seconds: float, parent: Connection) -> None:
    uvloop.run(_serve(count, service_seconds, parent))


async def _serve(count: int, service_seconds: float, parent: Connection) -> None:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(dir="/dev/shm", prefix="cornserve-benchmark-")))
        task = StageTask(seconds={"llm": service_seconds})
        parent.send([await _start(task, directory, stack) for _ in range(count)])
        await asyncio.to_thread(parent.recv)


async def _start(task: StageTask, directory: Path, stack: AsyncExitStack) -> ReplicaAddress:
    state = ExecutorState()
    state.set_phase(pb.PHASE_READY)
    transport = Transport(directory, CREDENTIALS, slab_bytes=SLAB_BYTES, request_bytes=SLAB_BYTES // 2)
    service = ExecutorService(StageExecutor(task), state, ExecutorMetrics(tuple), transport)
    listener = ConnectionListener({**service.connection_factories, **await transport.start()}, CREDENTIALS)
    stack.push_async_callback(transport.stop)
    stack.push_async_callback(listener.close)
    stack.push_async_callback(service.disconnect)
    endpoint = await listener.listen("127.0.0.1:0")
    loads = await asyncio.get_running_loop().create_server(partial(LoadServer, service), "127.0.0.1", 0)
    stack.callback(loads.close)
    return ReplicaAddress(endpoint, loads.sockets[0].getsockname()[1])
