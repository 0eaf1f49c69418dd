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
    """Serves echo executors, one for each spec; `states` tells what runs in them."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self._endpoints: dict[str, str] = {}
        self._servers: list[grpc.aio.Server] = []

    async def endpoint(self, spec: ExecutorSpec) -> str:
        if spec.key not in self._endpoints:
            state = self.states[spec.key] = State()
            state.enter(pb.PHASE_READY)
            executor = EchoExecutor(EchoTask.model_validate(spec.config))
            server = grpc.aio.server()
            service = ExecutorService(executor, state, Metrics(executor.metrics))
            executor_pb2_grpc.add_ExecutorServicer_to_server(service, server)
            self._endpoints[spec.key] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            self._servers.append(server)
        return self._endpoints[spec.key]

    async def close(self) -> None:
        for server in self._servers:
            await server.stop(grace=None)
