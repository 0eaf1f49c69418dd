"""The health checks of an executor, by which Kubernetes decides about its requests and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.health_services import LIVENESS_SERVICE, READINESS_SERVICE
from cornserve.wire.invocations import HEARTBEAT_SECONDS
from cornserve_executors.base import health
from cornserve_executors.base.health import serving_health
from cornserve_executors.base.state import ExecutorState
from tests.free_ports import free_port
from tests.waiting import until

READY = {LIVENESS_SERVICE, READINESS_SERVICE, ""}


@pytest.fixture
async def state() -> ExecutorState:
    return ExecutorState()


@pytest.fixture
async def checks(state: ExecutorState) -> AsyncIterator[grpc.Channel]:
    address = f"127.0.0.1:{free_port()}"
    async with serving_health(address, state):
        with grpc.insecure_channel(address) as channel:
            yield channel


def is_serving(channel: grpc.Channel, service: str) -> bool:
    """Blocks until the executor has responded."""
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    response = check(health_pb2.HealthCheckRequest(service=service), timeout=60)
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


def served(channel: grpc.Channel) -> set[str]:
    return {service for service in READY if is_serving(channel, service)}


async def test_an_executor_that_loads_is_alive_and_not_ready(checks: grpc.Channel) -> None:
    await until(lambda: asyncio.to_thread(is_serving, checks, LIVENESS_SERVICE))

    assert await asyncio.to_thread(served, checks) == {LIVENESS_SERVICE}


async def test_an_executor_that_serves_is_alive_and_ready(checks: grpc.Channel, state: ExecutorState) -> None:
    state.set_phase(pb.PHASE_READY)

    await until(lambda: asyncio.to_thread(is_serving, checks, READINESS_SERVICE))
    assert await asyncio.to_thread(served, checks) == READY


async def test_an_executor_that_drains_is_alive_and_not_ready(checks: grpc.Channel, state: ExecutorState) -> None:
    state.set_phase(pb.PHASE_READY)
    await until(lambda: asyncio.to_thread(is_serving, checks, READINESS_SERVICE))

    state.set_phase(pb.PHASE_DRAINING)

    await until(lambda: asyncio.to_thread(lambda: served(checks) == {LIVENESS_SERVICE}))


async def test_an_executor_whose_event_loop_is_blocked_is_neither(
    checks: grpc.Channel, state: ExecutorState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MAX_SILENCE_SECONDS", 1.2 * HEARTBEAT_SECONDS)
    state.set_phase(pb.PHASE_READY)
    await until(lambda: asyncio.to_thread(is_serving, checks, READINESS_SERVICE))

    while served(checks):
        pass  # This call blocks the event loop.


async def test_a_service_that_does_not_exist_is_an_error(checks: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError, match="unknown service"):
        await asyncio.to_thread(is_serving, checks, "cornserve.v1.Unknown")
