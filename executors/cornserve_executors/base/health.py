"""Serves the standard health checks of gRPC, for probes that have no secret, such as those of Kubernetes.

The server has its own threads and limits, so that clients cannot delay the executor. Its checks read what the event
loop has written last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cornserve.wire.health_services import LIVENESS_SERVICE, READINESS_SERVICE
from cornserve_executors.base.state import ExecutorState

MAX_SILENCE_SECONDS: Final = 10.0
"""An event loop that has not run for longer is blocked: the executor is neither alive nor ready."""

_OPTIONS: Final = [
    ("grpc.max_receive_message_length", 1024),
    ("grpc.max_metadata_size", 4096),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.max_allowed_incoming_connections", 64),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_connection_age_ms", 300_000),
]


@asynccontextmanager
async def serving_health(address: str, state: ExecutorState) -> AsyncIterator[None]:
    """Serves health checks at `HOST:PORT`."""
    checks = _HealthChecks()
    server = grpc.server(ThreadPoolExecutor(1, "health"), options=_OPTIONS, maximum_concurrent_rpcs=16)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_insecure_port(address)
    server.start()
    beating = asyncio.create_task(_beat(checks, state))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        server.stop(grace=None)


class _HealthChecks(health_pb2_grpc.HealthServicer):
    """Implements `Check`. Other methods, such as `Watch`, are not available: they would hold resources."""

    def __init__(self) -> None:
        self._serving_until: dict[str, float] = {}
        """The time until which each service serves, unless the event loop extends it."""

    def set_alive(self, *, is_ready: bool) -> None:
        end = time.monotonic() + MAX_SILENCE_SECONDS
        self._serving_until = {LIVENESS_SERVICE: end, READINESS_SERVICE: end if is_ready else 0.0}

    def Check(  # noqa: N802 - gRPC's spelling
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        service = request.service or READINESS_SERVICE
        if service not in (READINESS_SERVICE, LIVENESS_SERVICE):
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        is_serving = time.monotonic() < self._serving_until.get(service, 0.0)
        statuses = health_pb2.HealthCheckResponse
        return health_pb2.HealthCheckResponse(status=statuses.SERVING if is_serving else statuses.NOT_SERVING)


async def _beat(checks: _HealthChecks, state: ExecutorState) -> None:
    async for _ in state.observations():
        checks.set_alive(is_ready=state.is_ready)
