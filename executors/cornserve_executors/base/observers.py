"""Sends the state of an executor to its observers, such as its launcher."""

from __future__ import annotations

import asyncio
from contextvars import Context

from cornserve.concurrency import run_unless
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import OBSERVED
from cornserve.wire.listener import ConnectionFactories
from cornserve_executors.base.state import ExecutorState

MAX_UNSENT_OBSERVATIONS = 16
"""An observer that reads too slowly receives no further observation while this many are unsent."""


class StateObservers:
    def __init__(self, state: ExecutorState) -> None:
        self._state = state
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connection_factories(self) -> ConnectionFactories:
        return {OBSERVED.preamble: self._accept}

    async def close(self) -> None:
        """Closes all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> MessageConnection[pb.Observation, pb.ObserveRequest]:
        connection: MessageConnection[pb.Observation, pb.ObserveRequest] = MessageConnection(
            OBSERVED, lambda message: connection.abort("an observer sends no messages")
        )
        task = asyncio.create_task(self._serve(connection), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return connection

    async def _serve(self, connection: MessageConnection[pb.Observation, pb.ObserveRequest]) -> None:
        try:
            await run_unless(connection.closed, self._send_observations(connection))
        finally:
            connection.abort("the executor has closed the connection")
            await connection.wait_closed()

    async def _send_observations(self, connection: MessageConnection[pb.Observation, pb.ObserveRequest]) -> None:
        async for observation in self._state.observations():
            await connection.wait_for_capacity(MAX_UNSENT_OBSERVATIONS)
            connection.send(observation)
