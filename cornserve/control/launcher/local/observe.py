"""What an executor says of itself while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import grpc

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.local.folder import Folder
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc

POLL_SECONDS = 0.05
RETRY_SECONDS = 0.2
MOST_SILENCES = 5
"""In a row; a process that is ending is silent, too, and its end says more."""

_STATES = {
    pb.PHASE_LOADING: (ReplicaState.STARTING, "loading"),
    pb.PHASE_WARMING_UP: (ReplicaState.STARTING, "warming up"),
    pb.PHASE_READY: (ReplicaState.READY, ""),
    pb.PHASE_DRAINING: (ReplicaState.DRAINING, "finishes what is in flight"),
}


@dataclass(frozen=True, slots=True)
class Observed:
    state: ReplicaState
    message: str
    endpoint: str | None = None


async def observe(folder: Folder) -> AsyncGenerator[Observed, None]:
    """How the executor is, for as long as the caller wants to know."""
    yield Observed(ReplicaState.STARTING, "starting its process")
    while (endpoint := folder.read_endpoint()) is None:
        await asyncio.sleep(POLL_SECONDS)
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = executor_pb2_grpc.ExecutorStub(channel)
        silences = 0
        while True:
            try:
                async for observation in stub.Observe(pb.ObserveRequest()):
                    silences = 0
                    state, meaning = _STATES.get(observation.phase, (ReplicaState.STARTING, ""))
                    yield Observed(state, observation.message or meaning, endpoint)
            except grpc.aio.AioRpcError:
                pass  # It is starting to listen, or ending.
            silences += 1
            if silences > MOST_SILENCES:
                yield Observed(ReplicaState.STARTING, "does not answer", endpoint)
            await asyncio.sleep(RETRY_SECONDS)
