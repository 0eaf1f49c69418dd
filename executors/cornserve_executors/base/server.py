"""The life of an executor's server: it listens, loads, serves, drains, and ends.

It listens before the model is loaded, so that whoever started the process can watch it start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import start_http_server

from cornserve.atomic_files import write_atomically
from cornserve.concurrency import run_unless
from cornserve.transport import Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve_executors.base.endpoint import open_endpoint
from cornserve_executors.base.executor import EngineDeadError, Executor
from cornserve_executors.base.metrics import Metrics
from cornserve_executors.base.service import ExecutorService
from cornserve_executors.base.state import ExecutorState

log = logging.getLogger("cornserve.executor")

LINGER_SECONDS = 1.0
"""How long a draining executor still takes new callers: those that come have not heard of it yet."""

SERVICE = "cornserve.v1.Executor"
"""The service name of the health check; the empty name is an alias."""

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Who keeps a stream open may ping an idle connection, too, to notice that the other side is gone. By default that
    # counts as an attack, and ends the connection.
    ("grpc.http2.max_ping_strikes", 0),
]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    listen: str
    """`HOST:PORT`; port 0 is any free one."""
    announce: Path | None
    """The file that tells others which it was, and on a second line where the metrics are."""
    metrics_port: int | None

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0]


class Server:
    def __init__(self, executor: Executor[Any, Any, Any], transport: Transport, queue: int) -> None:
        self._executor = executor
        self._state = ExecutorState()
        self._transport = transport
        self._metrics = Metrics(lambda: (*executor.metrics(), *transport.metrics()))
        self._service = ExecutorService(executor, self._state, self._metrics, transport, queue)
        self._health = health.aio.HealthServicer()

    async def run(self, address: Address, terminated: asyncio.Event, drain_seconds: float) -> None:
        """Serves until `terminated`. Raises what the executor did not start for, or `EngineDeadError`."""
        async with self._listening(address):
            try:
                if await run_unless(terminated, self._executor.start(self._state.report_progress)):
                    await self._serve(terminated)
                    await self._drain(drain_seconds)
            finally:
                self._state.close()  # Observers would keep the server for all of the grace.
                await self._service.abort("the executor ends")
                await self._executor.stop()
                await self._transport.stop()

    @asynccontextmanager
    async def _listening(self, address: Address) -> AsyncIterator[None]:
        server = grpc.aio.server(options=_OPTIONS)
        executor_pb2_grpc.add_ExecutorServicer_to_server(self._service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        factories = {**self._service.connection_factories, **await self._transport.start(address.host)}
        await self._set_health(serving=False)
        async with open_endpoint(server, factories, address.listen) as endpoint:
            announcement = [endpoint]
            if address.metrics_port is not None:
                metrics, _ = start_http_server(address.metrics_port, address.host, registry=self._metrics.registry)
                announcement.append(f"{address.host}:{metrics.server_port}")
            if address.announce is not None:
                write_atomically(address.announce, "\n".join(announcement))
            try:
                yield
            finally:
                await asyncio.gather(server.stop(grace=1), self._service.disconnect())

    async def _serve(self, terminated: asyncio.Event) -> None:
        self._state.set_phase(pb.PHASE_READY)
        await self._set_health(serving=True)
        log.info("ready")
        watching = asyncio.create_task(self._watch_engine())
        try:
            if await run_unless(terminated, self._state.wait_engine_death()):
                raise EngineDeadError(await self._state.wait_engine_death())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._set_health(serving=False)

    async def _watch_engine(self) -> None:
        """Invocations stumble over a dead engine; this notices it also when there are none."""
        self._state.set_engine_dead(await self._executor.death())

    async def _drain(self, seconds: float) -> None:
        log.info("draining")
        self._state.set_phase(pb.PHASE_DRAINING)
        await asyncio.sleep(LINGER_SECONDS)
        self._state.refuse_new_callers()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._state.wait_without_callers(), seconds)

    async def _set_health(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for service in ("", SERVICE):
            await self._health.set(service, status.SERVING if serving else status.NOT_SERVING)
