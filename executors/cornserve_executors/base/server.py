"""The server of an executor process: it listens, loads the executor, serves, drains, and stops.

It listens before the model is loaded, so that its launcher can observe the start.
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
from cornserve_executors.base.metrics import ExecutorMetrics
from cornserve_executors.base.service import ExecutorService
from cornserve_executors.base.state import ExecutorState

log = logging.getLogger("cornserve.executor")

DRAIN_GRACE_SECONDS = 1.0
"""The time in which a draining executor accepts new callers, which may not know yet that it drains."""

HEALTH_SERVICE = "cornserve.v1.Executor"
"""The service name of the health check; the empty name is an alias."""

_GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Clients with an open stream may ping an idle connection to detect that the server is gone. By default, gRPC treats
    # frequent pings as an attack and closes the connection.
    ("grpc.http2.max_ping_strikes", 0),
]


@dataclass(frozen=True, slots=True)
class ListenOptions:
    address: str
    """`HOST:PORT`; port 0 is any free port."""
    announce: Path | None
    """The server writes its endpoint to this file, and the address of its metrics to the second line."""
    metrics_port: int | None
    """The port of the metrics. If None, the executor does not serve metrics."""

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]


class ExecutorServer:
    def __init__(self, executor: Executor[Any, Any, Any], transport: Transport, queue: int) -> None:
        self._executor = executor
        self._state = ExecutorState()
        self._transport = transport
        self._metrics = ExecutorMetrics(lambda: (*executor.metrics(), *transport.metrics()))
        self._service = ExecutorService(executor, self._state, self._metrics, transport, queue)
        self._health = health.aio.HealthServicer()

    async def run(self, options: ListenOptions, terminated: asyncio.Event, drain_seconds: float) -> None:
        """Serves until `terminated` is set, then drains. Raises the executor's start error, or `EngineDeadError`."""
        async with self._listening(options):
            try:
                if await run_unless(terminated, self._executor.start(self._state.report_progress)):
                    await self._serve(terminated)
                    await self._drain(drain_seconds)
            finally:
                self._state.close()  # open observations would delay the server's stop by its grace period
                await self._service.abort("the executor is stopping")
                await self._executor.stop()
                await self._transport.stop()

    @asynccontextmanager
    async def _listening(self, options: ListenOptions) -> AsyncIterator[None]:
        server = grpc.aio.server(options=_GRPC_OPTIONS)
        executor_pb2_grpc.add_ExecutorServicer_to_server(self._service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        factories = {**self._service.connection_factories, **await self._transport.start(options.host)}
        await self._set_health(serving=False)
        async with open_endpoint(server, factories, options.address) as endpoint:
            announcement = [endpoint]
            if options.metrics_port is not None:
                metrics, _ = start_http_server(options.metrics_port, options.host, registry=self._metrics.registry)
                announcement.append(f"{options.host}:{metrics.server_port}")
            if options.announce is not None:
                write_atomically(options.announce, "\n".join(announcement))
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
        """Detects the engine's death, even while no invocation runs."""
        self._state.set_engine_dead(await self._executor.wait_engine_death())

    async def _drain(self, timeout_seconds: float) -> None:
        log.info("draining")
        self._state.set_phase(pb.PHASE_DRAINING)
        await asyncio.sleep(DRAIN_GRACE_SECONDS)
        self._state.refuse_new_callers()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._state.wait_without_callers(), timeout_seconds)

    async def _set_health(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for service in ("", HEALTH_SERVICE):
            await self._health.set(service, status.SERVING if serving else status.NOT_SERVING)
