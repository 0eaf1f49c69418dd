"""What an executor says of itself while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

import grpc

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.local.state_dir import ExecutorAddresses, ReplicaDir
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc

POLL_SECONDS = 0.05
RETRY_SECONDS = 0.2

_STATES = {
    pb.PHASE_LOADING: (ReplicaState.STARTING, "loading"),
    pb.PHASE_READY: (ReplicaState.READY, ""),
    pb.PHASE_DRAINING: (ReplicaState.DRAINING, "finishes what is in flight"),
}


@dataclass(frozen=True, slots=True)
class ExecutorStatus:
    state: ReplicaState
    message: str
    addresses: ExecutorAddresses | None = None


async def observe(folder: ReplicaDir) -> AsyncGenerator[ExecutorStatus, None]:
    """How the executor is, about every second, for as long as the caller wants to know and the executor says so."""
    yield ExecutorStatus(ReplicaState.STARTING, "starting its process")
    while (addresses := folder.read_addresses()) is None:
        await asyncio.sleep(POLL_SECONDS)
    async with grpc.aio.insecure_channel(addresses.endpoint) as channel:
        stub = executor_pb2_grpc.ExecutorStub(channel)
        while True:
            # It is starting to listen, or ending.
            with suppress(grpc.aio.AioRpcError):
                async for observation in stub.Observe(pb.ObserveRequest()):
                    state, meaning = _STATES.get(observation.phase, (ReplicaState.STARTING, ""))
                    yield ExecutorStatus(state, observation.message or meaning, addresses)
            await asyncio.sleep(RETRY_SECONDS)
