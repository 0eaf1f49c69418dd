"""Requests beyond a limit get an error that names the limit, and do not affect other requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.gateway.endpoints.v1_router import OPERATIONS
from cornserve.gateway.http.model_paths import ALIASES, calls_model
from cornserve.limits import MIB, Limits
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.metrics import exposes, sample
from tests.unit.gateway.raw_http import post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO, STEPS
from tests.waiting import until

INVOKE = "/v1/apps/echo/invoke"
SLOW = {"text": "slow", "seconds": 1000}
QUICK = {"text": "quick"}

Fill = Callable[..., Awaitable[None]]


@pytest.fixture(scope="module")
def gateway_options(request: pytest.FixtureRequest) -> GatewayOptions:
    limits = Limits(in_flight=3, in_flight_per_app=2, body_mib=1, bodies_mib=2, json_values=20_000)
    return getattr(request, "param", GatewayOptions(limits))


@pytest_asyncio.fixture(loop_scope="module")
async def fill(gateway: httpx.AsyncClient, executors: EchoExecutors) -> AsyncIterator[Fill]:
    """Starts requests that stay in flight until the test ends."""
    requests: list[asyncio.Task[httpx.Response]] = []

    async def fill(count: int, app: str = "echo", **request: object) -> None:
        before = executors.running()
        post = partial(gateway.post, f"/v1/apps/{app}/invoke", json=SLOW | request)
        requests.extend(asyncio.create_task(post()) for _ in range(count))
        await until(lambda: executors.running() == before + count)

    yield fill
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    await until(lambda: exposes(gateway, "cornserve_gateway_http_requests_in_flight 0.0"))


async def test_a_full_app_returns_429_and_other_apps_are_served(
    gateway: httpx.AsyncClient, deploy: Deploy, fill: Fill
) -> None:
    await deploy(ECHO)
    await deploy(STEPS)
    await fill(2)

    rejected = await gateway.post(INVOKE, json=QUICK)
    other = await gateway.post("/v1/apps/steps/invoke", json={"words": ["a"]})

    assert (rejected.status_code, other.status_code) == (429, 200)
    assert rejected.json()["error"] == {
        "message": "the gateway is full: 2 requests to 'echo' are in flight "
        "(limit in-flight-per-app=2, see `cornserve up --limit`); try again later",
        "type": "rate_limit_error",
        "param": None,
        "code": "overloaded",
    }
    assert rejected.headers["retry-after"] == "1"
    assert rejected.headers["x-request-id"]


async def test_a_full_gateway_rejects_a_request_before_its_body_arrives(
    gateway: httpx.AsyncClient, deploy: Deploy, fill: Fill
) -> None:
    await deploy(ECHO)
    await deploy(STEPS)
    await fill(2)
    await fill(1, "steps", words=["a"])

    async with raw_connection(gateway) as connection:
        await connection.send(post(INVOKE, "Content-Length: 20"))
        response = await connection.read_response()

    assert response.status == 429
    assert response.headers["x-request-id"]
    assert "3 requests are in flight (limit in-flight=3, " in response.message


async def test_a_full_gateway_serves_administration_and_probes(
    gateway: httpx.AsyncClient, deploy: Deploy, fill: Fill
) -> None:
    await deploy(ECHO)
    await deploy(STEPS)
    await fill(2)
    await fill(1, "steps", words=["a"])

    assert (await gateway.get("/v1/models")).status_code == 429
    assert (await gateway.get("/healthz")).status_code == 200
    assert (await gateway.delete("/admin/v1/apps/echo")).status_code == 204


async def test_a_finished_request_does_not_count_as_in_flight(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)

    for _ in range(10):
        assert (await gateway.post(INVOKE, json=QUICK)).status_code == 200
        assert (await gateway.post(INVOKE, json={})).status_code == 400
        assert (await gateway.post("/v1/apps/none/invoke", json={})).status_code == 404


async def test_a_content_length_above_the_limit_is_rejected_before_the_body_is_read(gateway: httpx.AsyncClient) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(post(INVOKE, f"Content-Length: {MIB + 1}"))
        response = await connection.read_response()

        assert response.status == 413
        assert response.message == "the body has at least 1048577 bytes (limit body-mib=1, see `cornserve up --limit`)"
        await connection.send(b"x" * (MIB + 1))  # the client continues to send
        assert await connection.is_closed()


async def test_a_chunked_body_is_rejected_when_it_exceeds_the_limit(gateway: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    response = await gateway.post(INVOKE, content=chunks())

    assert response.status_code == 413
    assert "limit body-mib=1" in response.json()["error"]["message"]


async def test_the_total_size_of_bodies_is_limited_and_released(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    body = b'{"text": "' + b"x" * (MIB - 20)
    errors = 'cornserve_gateway_error_responses_total{code="overloaded",status="429"}'
    before = await sample(gateway, errors)
    async with raw_connection(gateway) as first, raw_connection(gateway) as second:
        for connection in (first, second):
            await connection.send(post(INVOKE, f"Content-Length: {MIB}") + body)
        await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 2.097"))

        rejected = await gateway.post(INVOKE, content=body + b'"}')

        assert rejected.status_code == 429
        assert "limit bodies-mib=2" in rejected.json()["error"]["message"]
        assert await sample(gateway, errors) == before + 1

    await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0"))
    assert (await gateway.post(INVOKE, content=body + b'"}')).status_code == 200


@pytest.mark.parametrize("body", [b"[" + b"1," * 40_000 + b"1]", b'{"a": ' + b"[],[" * 20_000])
async def test_json_with_too_many_values_is_rejected_without_parsing(gateway: httpx.AsyncClient, body: bytes) -> None:
    response = await gateway.post("/v1/chat/completions", content=body)

    assert response.status_code == 413
    assert re.search(r"the body has \d+ values \(limit json-values=20000, ", response.json()["error"]["message"])


# The code of an app may run for an hour of the clock, which these tests advance faster than other processes run.
@with_gateway_options(GatewayOptions(Limits(in_flight=1, receive_seconds=1, stall_seconds=1, run_seconds=3600)))
class TestTimeouts:
    @pytest.mark.parametrize("sent", [b"PO", b"POST / HTTP/1.1\r\nHost: local", post(INVOKE, "Content-Length: 9")])
    async def test_an_incomplete_request_times_out(
        self, gateway: httpx.AsyncClient, clock: LoopClock, sent: bytes
    ) -> None:
        async with raw_connection(gateway) as connection:
            await connection.send(sent)

            response = await clock.advance_during(connection.read_response(), step=0.1)

            assert response.status == 408
            assert "did not arrive in time (limit receive-seconds=1, " in response.message
            assert await connection.is_closed()

    async def test_a_timeout_of_a_pipelined_request_does_not_interrupt_the_first_response(
        self, gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s", "seconds": 3}' % (b" word" * 100)
        async with raw_connection(gateway) as connection, asyncio.timeout(60):
            await connection.send(post(INVOKE, "Accept: text/event-stream", f"Content-Length: {len(body)}") + body)
            await connection.reader.readuntil(b"data: ")
            await connection.send(post(INVOKE, "Content-Length: 9"))

            first = await clock.advance_during(connection.reader.readuntil(b"0\r\n\r\n"), step=0.1)
            assert b"event: result" in first
            assert (await clock.advance_during(connection.read_response(), step=0.1)).status == 408
            assert await connection.ends()

    async def test_a_slow_body_times_out_and_does_not_count_as_in_flight(
        self, gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock
    ) -> None:
        await deploy(ECHO)
        async with raw_connection(gateway) as connection:
            await connection.send(post(INVOKE, "Content-Length: 1000000"))
            assert (await gateway.get("/healthz")).status_code == 200  # the gateway has received the head
            response = asyncio.create_task(connection.read_response())
            while not response.done():
                with suppress(ConnectionError):
                    await connection.send(b" ")
                clock.advance(0.1)
                assert (await gateway.post(INVOKE, json=QUICK)).status_code == 200

            assert (await response).status == 408

    async def test_a_client_that_reads_nothing_is_disconnected_and_its_invocation_cancelled(
        self, gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s", "seconds": 300}' % (b"x" * 3 * MIB + b" word" * 1_000)
        async with raw_connection(gateway) as connection:
            await connection.send(post(INVOKE, "Accept: text/event-stream", f"Content-Length: {len(body)}") + body)
            await until(lambda: executors.running() == 1)
            await clock.advance_until(lambda: executors.running() == 0, step=0.1)


@with_gateway_options(GatewayOptions(Limits(bodies_mib=20, text_mib=16)))
class TestResponses:
    async def test_a_large_response_counts_as_memory_until_it_is_read(
        self, gateway: httpx.AsyncClient, deploy: Deploy
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s"}' % (b"x" * 11 * MIB)
        async with raw_connection(gateway) as connection:
            await connection.send(post(INVOKE, f"Content-Length: {len(body)}") + body)
            await until(lambda: exposes(gateway, 'cornserve_gateway_requests_total{app="echo",status="200"} 1.0'))
            assert await exposes(gateway, "cornserve_gateway_http_requests_in_flight 1.0")

            rejected = await gateway.post(INVOKE, content=body)

            assert rejected.status_code == 429
            assert "limit bodies-mib=20, " in rejected.json()["error"]["message"]
            assert (await connection.read_response()).status == 200
            await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0.0"))
            assert (await gateway.post(INVOKE, content=body)).status_code == 200

    async def test_a_disconnect_after_a_large_body_cancels_the_request(
        self, gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s", "seconds": 300}' % (b"x" * 6 * MIB + b" word" * 1_000)
        async with raw_connection(gateway) as connection:
            await connection.send(post(INVOKE, f"Content-Length: {len(body)}") + body)
            await until(lambda: executors.running() == 1)

        await until(lambda: executors.running() == 0)
        await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0.0"))


@with_gateway_options(GatewayOptions(Limits(connections=2)))
class TestConnections:
    async def test_connections_beyond_the_limit_get_a_429(self, gateway: httpx.AsyncClient) -> None:
        async with raw_connection(gateway), raw_connection(gateway) as rejected:
            response = await rejected.read_response()

            assert response.status == 429
            assert "2 clients are connected (limit connections=2, " in response.message
            assert await rejected.is_closed()


async def test_endless_headers_are_rejected(gateway: httpx.AsyncClient) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(40):
            await connection.send(b"x" * 4096)

        response = await connection.read_response()

        assert response.status == 431
        assert "more than 65536 bytes" in response.message


async def test_too_long_headers_in_one_packet_are_rejected(gateway: httpx.AsyncClient) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 65536 + b"\r\n\r\n")

        assert (await connection.read_response()).status == 431


async def test_the_header_limit_excludes_the_body(gateway: httpx.AsyncClient) -> None:
    """Splits the head at each of its last bytes, as packets may do."""
    head, body = post("/v1/none", "Content-Length: 200000"), b" " * 200_000
    for cut in range(len(head) - 5, len(head) + 1):
        async with raw_connection(gateway) as connection:
            await connection.send(head[:cut])
            await connection.send(head[cut:] + body)

            assert (await connection.read_response()).status == 404


def test_all_operations_on_apps_count_as_in_flight() -> None:
    paths = {operation.path for operation in OPERATIONS} | set(ALIASES)

    assert {path for path in paths if not calls_model(path)} == {"/admin/v1/apps/{name}/record"}
