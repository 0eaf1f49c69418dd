"""Observes the state that a running executor reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.local.state_dir import ExecutorAddresses, ReplicaDir
from cornserve.control.launcher.local.uninterrupted_thread import finish_in_thread
from cornserve.instance_secret import InstanceSecretError
from cornserve.observe.limited_log import LimitedLog
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials, TlsFilesError
from cornserve.wire.invocations import OBSERVER

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
RECONNECT_SECONDS = 0.2
CONNECT_SECONDS = 5.0

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


async def watch_executor(
    replica_dir: ReplicaDir, load_credentials: Callable[[], ConnectionCredentials]
) -> AsyncGenerator[ExecutorStatus, None]:
    """Yields the executor's status about every second while the executor responds. Runs until closed."""
    yield ExecutorStatus(ReplicaState.STARTING, "starting its process")
    while (addresses := replica_dir.read_addresses()) is None:
        await asyncio.sleep(POLL_SECONDS)
    limited_log = LimitedLog(log)
    while True:
        try:
            credentials = await finish_in_thread(load_credentials)
            async with aclosing(_observations(addresses.endpoint, credentials)) as observations:
                async for observation in observations:
                    state, default_message = _STATES.get(observation.phase, (ReplicaState.STARTING, ""))
                    yield ExecutorStatus(state, observation.message or default_message, addresses)
        except (InstanceSecretError, TlsFilesError, OSError) as error:  # also before it listens and while it exits
            limited_log.warning("cannot observe replica %s: %s", replica_dir.id, error)
        await asyncio.sleep(RECONNECT_SECONDS)


async def _observations(endpoint: str, credentials: ConnectionCredentials) -> AsyncGenerator[pb.Observation, None]:
    """Yields observations until the connection closes. Raises `OSError` if it cannot be established."""
    received: asyncio.Queue[pb.Observation | None] = asyncio.Queue()
    connection = MessageConnection(OBSERVER, received.put_nowait)
    closing = asyncio.create_task(connection.wait_closed())
    closing.add_done_callback(lambda _: received.put_nowait(None))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect(endpoint, credentials)
        while (observation := await received.get()) is not None:
            yield observation
    finally:
        connection.abort("the observer has ended")
        await closing
