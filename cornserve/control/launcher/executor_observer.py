"""Observes the state that a running executor reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from cornserve.app.record import ReplicaState
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.invocations import OBSERVER

CONNECT_SECONDS = 5.0

_STATES = {
    pb.PHASE_LOADING: (ReplicaState.STARTING, "loading"),
    pb.PHASE_READY: (ReplicaState.READY, ""),
    pb.PHASE_DRAINING: (ReplicaState.DRAINING, "finishing the invocations in flight"),
}


@dataclass(frozen=True, slots=True)
class ReportedState:
    state: ReplicaState
    message: str


async def observe_executor(endpoint: str, credentials: ConnectionCredentials) -> AsyncGenerator[ReportedState, None]:
    """Yields the executor's state every few seconds, and after each change, until the connection closes.

    Raises `OSError` if it cannot be established.
    """
    received: asyncio.Queue[pb.Observation | None] = asyncio.Queue()
    connection = MessageConnection(OBSERVER, received.put_nowait)
    closing = asyncio.create_task(connection.wait_closed())
    closing.add_done_callback(lambda _: received.put_nowait(None))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect(endpoint, credentials)
        while (observation := await received.get()) is not None:
            state, default_message = _STATES.get(observation.phase, (ReplicaState.STARTING, ""))
            yield ReportedState(state, observation.message or default_message)
    finally:
        connection.abort("the observer has ended")
        await closing
