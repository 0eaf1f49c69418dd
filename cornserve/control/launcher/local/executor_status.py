"""Observes the state that a running executor reports."""

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
RECONNECT_SECONDS = 0.2

_STATES = {
    pb.PHASE_LOADING: (ReplicaState.STARTING, "loading"),
    pb.PHASE_READY: (ReplicaState.READY, ""),
    pb.PHASE_DRAINING: (ReplicaState.DRAINING, "finishing the invocations in flight"),
}


@dataclass(frozen=True, slots=True)
class ExecutorStatus:
    state: ReplicaState
    message: str
    addresses: ExecutorAddresses | None = None


async def watch_executor(replica_dir: ReplicaDir) -> AsyncGenerator[ExecutorStatus, None]:
    """Yields the executor's status about every second while the executor responds. Runs until closed."""
    yield ExecutorStatus(ReplicaState.STARTING, "starting its process")
    while (addresses := replica_dir.read_addresses()) is None:
        await asyncio.sleep(POLL_SECONDS)
    async with grpc.aio.insecure_channel(addresses.endpoint) as channel:
        stub = executor_pb2_grpc.ExecutorStub(channel)
        while True:
            # The call fails before the executor listens and while it exits.
            with suppress(grpc.aio.AioRpcError):
                async for observation in stub.Observe(pb.ObserveRequest()):
                    state, default_message = _STATES.get(observation.phase, (ReplicaState.STARTING, ""))
                    yield ExecutorStatus(state, observation.message or default_message, addresses)
            await asyncio.sleep(RECONNECT_SECONDS)
