"""Serves executors of the echo package in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cornserve.task.spec import ExecutorSpec, find_executor
from cornserve.transport import Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.listener import ConnectionListener
from cornserve_executors.base import Executor
from cornserve_executors.base.metrics import ExecutorMetrics
from cornserve_executors.base.observers import StateObservers
from cornserve_executors.base.service import ExecutorService
from cornserve_executors.base.state import ExecutorState
from tests.credentials import CREDENTIALS

SLAB_BYTES = 8 * 1024 * 1024


class EchoExecutors:
    """Starts echo executors on demand. `states` and `services` contain theirs by endpoint.

    Args:
        queue: the number of invocations that each executor takes.
    """

    def __init__(self, queue: int = 1024) -> None:
        self._queue = queue
        self.states: dict[str, ExecutorState] = {}
        self.services: dict[str, ExecutorService] = {}
        self._metrics: dict[str, ExecutorMetrics] = {}
        self._directory = TemporaryDirectory(dir="/dev/shm", prefix="cornserve-test-")
        self._endpoints: dict[str, str] = {}
        self._served: dict[str, AsyncExitStack] = {}

    async def endpoint(self, spec: ExecutorSpec) -> str:
        """Returns the endpoint of the spec's first replica; starts it if needed."""
        if spec.key not in self._endpoints:
            self._endpoints[spec.key] = await self.replica(spec)
        return self._endpoints[spec.key]

    async def replica(self, spec: ExecutorSpec) -> str:
        """Starts another replica; returns its endpoint."""
        state = ExecutorState()
        state.set_phase(pb.PHASE_READY)
        executor_type: type[Executor[Any, Any, Any]] = find_executor(spec.executor).load()
        executor = executor_type(executor_type.config_type.model_validate(spec.config))
        transport = Transport(
            Path(self._directory.name), CREDENTIALS, slab_bytes=SLAB_BYTES, request_bytes=SLAB_BYTES // 2
        )
        metrics = ExecutorMetrics(lambda: (*executor.metrics(), *transport.metrics()))
        service = ExecutorService(executor, state, metrics, transport, self._queue)
        served = AsyncExitStack()
        served.push_async_callback(transport.stop)

        observers = StateObservers(state)
        factories = {
            **service.connection_factories,
            **observers.connection_factories,
            **await transport.start(),
        }
        factories = {preamble: partial(_create_killable, served, create) for preamble, create in factories.items()}
        listener = ConnectionListener(factories, CREDENTIALS)
        endpoint = await listener.listen("127.0.0.1:0")
        served.push_async_callback(observers.close)
        served.push_async_callback(listener.close)
        self.states[endpoint], self.services[endpoint], self._served[endpoint] = state, service, served
        self._metrics[endpoint] = metrics
        return endpoint

    def running(self, endpoint: str | None = None) -> int:
        """Returns how many invocations run at the endpoint, or at all endpoints."""
        return int(self.total("cornserve_executor_invocations_running", endpoint=endpoint))

    def total(self, metric: str, labels: dict[str, str] | None = None, endpoint: str | None = None) -> float:
        selected = self._metrics.values() if endpoint is None else [self._metrics[endpoint]]
        return sum(metrics.registry.get_sample_value(metric, labels) or 0 for metrics in selected)

    async def kill(self, endpoint: str) -> None:
        await self._served.pop(endpoint).aclose()

    async def close(self) -> None:
        for endpoint in list(self._served):
            await self.kill(endpoint)
        self._directory.cleanup()


def _create_killable(served: AsyncExitStack, create: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
    connection = create()
    if isinstance(connection, MessageConnection):
        served.push_async_callback(connection.wait_closed)
        served.callback(connection.abort, "killed")
    return connection
