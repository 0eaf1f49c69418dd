"""Echo executors, served over gRPC as ever, but in the test's own process."""

from __future__ import annotations

import grpc

from cornserve.task.spec import ExecutorSpec
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve_echo.executor import EchoExecutor
from cornserve_echo.task import EchoTask
from cornserve_executors.base.metrics import Metrics
from cornserve_executors.base.service import ExecutorService
from cornserve_executors.base.state import State


class EchoExecutors:
    """Serves echo executors; `states` has the lives of them, by endpoint."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.services: dict[str, ExecutorService] = {}
        self._metrics: dict[str, Metrics] = {}
        self._endpoints: dict[str, str] = {}
        self._servers: dict[str, grpc.aio.Server] = {}

    async def endpoint(self, spec: ExecutorSpec) -> str:
        """Of the one executor of a spec."""
        if spec.key not in self._endpoints:
            self._endpoints[spec.key] = await self.replica(spec)
        return self._endpoints[spec.key]

    async def replica(self, spec: ExecutorSpec) -> str:
        """The endpoint of a further one."""
        state = State()
        state.enter(pb.PHASE_READY)
        executor = EchoExecutor(EchoTask.model_validate(spec.config))
        server = grpc.aio.server()
        metrics = Metrics(executor.metrics)
        service = ExecutorService(executor, state, metrics)
        executor_pb2_grpc.add_ExecutorServicer_to_server(service, server)
        endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self.states[endpoint], self.services[endpoint], self._servers[endpoint] = state, service, server
        self._metrics[endpoint] = metrics
        return endpoint

    def running(self, endpoint: str | None = None) -> int:
        """How many invocations run there, or in all."""
        asked = self._metrics.values() if endpoint is None else [self._metrics[endpoint]]
        return sum(int(metrics.registry.get_sample_value("cornserve_executor_running") or 0) for metrics in asked)

    async def kill(self, endpoint: str) -> None:
        await self._servers.pop(endpoint).stop(grace=None)

    async def close(self) -> None:
        for endpoint in list(self._servers):
            await self.kill(endpoint)
