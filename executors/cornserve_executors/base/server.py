"""The server of an executor process: it listens, loads the executor, serves, drains, and stops.

It listens before the model is loaded, so that its launcher can observe the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cornserve.atomic_files import write_atomically
from cornserve.concurrency import gather_all, run_unless
from cornserve.observe.metrics_server import start_metrics_server
from cornserve.transport import Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionListener
from cornserve_executors.base.executor import EngineDeadError, Executor
from cornserve_executors.base.metrics import ExecutorMetrics
from cornserve_executors.base.observers import StateObservers
from cornserve_executors.base.service import ExecutorService
from cornserve_executors.base.state import ExecutorState

log = logging.getLogger("cornserve.executor")

DRAIN_GRACE_SECONDS = 1.0
"""The time in which a draining executor accepts new callers, which may not know yet that it drains."""


@dataclass(frozen=True, slots=True)
class ListenOptions:
    address: str
    """`HOST:PORT`; port 0 is any free port."""
    announce: Path | None
    """The server writes its endpoint to this file, and the address of its metrics to the second line."""
    metrics_port: int | None
    """The port of the metrics. If None, the executor does not serve metrics."""
    health_port: int | None
    """The port of the health checks. If None, the executor does not serve them."""

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]


class ExecutorServer:
    def __init__(
        self,
        executor: Executor[Any, Any, Any],
        transport: Transport,
        credentials: ConnectionCredentials,
        queue: int,
    ) -> None:
        self._executor = executor
        self._credentials = credentials
        self._state = ExecutorState()
        self._transport = transport
        self._metrics = ExecutorMetrics(lambda: (*executor.metrics(), *transport.metrics()))
        self._service = ExecutorService(executor, self._state, self._metrics, transport, queue)
        self._observers = StateObservers(self._state)

    async def run(self, options: ListenOptions, terminated: asyncio.Event, drain_seconds: float) -> None:
        """Serves until `terminated` is set, then drains. Raises the executor's start error, or `EngineDeadError`."""
        async with self._listening(options):
            try:
                if await run_unless(terminated, self._start()):
                    await self._serve(terminated)
                    await self._drain(drain_seconds)
            finally:
                self._state.close()
                await self._service.abort("the executor is stopping")
                await self._executor.stop()
                await self._transport.stop()

    async def _start(self) -> None:
        """Starts the executor. Meanwhile creates the slab of an executor whose invocations produce tensors."""
        work = [self._executor.start(self._state.report_progress)]
        if self._executor.layout.has_tensors:
            work.append(self._transport.create_slab())
        await gather_all(work)

    @asynccontextmanager
    async def _listening(self, options: ListenOptions) -> AsyncIterator[None]:
        factories = {
            **self._service.connection_factories,
            **self._observers.connection_factories,
            **await self._transport.start(),
        }
        listener = ConnectionListener(factories, self._credentials)
        announcement = [await listener.listen(options.address)]
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._observers.close)
            stack.push_async_callback(self._service.disconnect)
            stack.push_async_callback(listener.close)
            if options.metrics_port is not None:
                port = start_metrics_server(options.host, options.metrics_port, self._metrics.registry)
                announcement.append(f"{options.host}:{port}")
            if options.health_port is not None:
                from cornserve_executors.base.health import serving_health  # imports gRPC

                await stack.enter_async_context(serving_health(f"{options.host}:{options.health_port}", self._state))
            if options.announce is not None:
                write_atomically(options.announce, "\n".join(announcement))
            yield

    async def _serve(self, terminated: asyncio.Event) -> None:
        self._state.set_phase(pb.PHASE_READY)
        log.info("ready")
        watching = asyncio.create_task(self._watch_engine())
        try:
            if await run_unless(terminated, self._state.wait_engine_death()):
                raise EngineDeadError(await self._state.wait_engine_death())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch_engine(self) -> None:
        """Detects the engine's death, even while no invocation runs."""
        self._state.set_engine_dead(await self._executor.wait_engine_death())

    async def _drain(self, timeout_seconds: float) -> None:
        log.info("draining")
        self._state.set_phase(pb.PHASE_DRAINING)
        await asyncio.sleep(DRAIN_GRACE_SECONDS)
        self._state.refuse_new_callers()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._state.wait_without_callers()
