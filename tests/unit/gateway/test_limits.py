"""What is too much is refused, with the limit's name, and costs nobody else anything."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import httpx2 as httpx
import pytest

from cornserve.limits import MIB, Limits
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.raw_http import post, raw
from tests.unit.gateway.sources import ECHO, STEPS
from tests.waiting import until

INVOKE = "/v1/apps/echo/invoke"
SLOW = {"text": "slow", "seconds": 1000}
QUICK = {"text": "quick"}

Fill = Callable[..., Awaitable[None]]


@pytest.fixture
def limits() -> Limits:
    return Limits(in_flight=3, in_flight_per_app=2, body_mib=1, bodies_mib=2, json_values=20_000)


@pytest.fixture
async def fill(gateway: httpx.AsyncClient, executors: EchoExecutors) -> Fill:
    """Keeps so many requests in flight to each of some apps, until the test ends."""

    async def fill(count: int, app: str = "echo", **request: object) -> None:
        before = executors.running()
        for _ in range(count):
            task = asyncio.create_task(gateway.post(f"/v1/apps/{app}/invoke", json=SLOW | request))
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await until(lambda: executors.running() == before + count)

    return fill


async def test_an_app_that_has_enough_to_do_is_a_429_and_the_others_are_served(
    gateway: httpx.AsyncClient, deploy: Deploy, fill: Fill
) -> None:
    await deploy(ECHO)
    await deploy(STEPS)
    await fill(2)

    refused = await gateway.post(INVOKE, json=QUICK)
    other = await gateway.post("/v1/apps/steps/invoke", json={"words": ["a"]})

    assert (refused.status_code, other.status_code) == (429, 200)
    assert refused.json()["error"] == {
        "message": "the gateway is full: 2 requests to 'echo' are in flight "
        "(limit in-flight-per-app=2, see `cornserve up --limit`); try again later",
        "type": "rate_limit_error",
        "param": None,
        "code": "overloaded",
    }
    assert refused.headers["retry-after"] == "1"


async def test_a_full_gateway_refuses_before_it_has_the_body(
    gateway: httpx.AsyncClient, deploy: Deploy, fill: Fill
) -> None:
    await deploy(ECHO)
    await deploy(STEPS)
    await fill(2)
    await fill(1, "steps", words=["a"])

    async with raw(gateway) as connection:
        await connection.send(post(INVOKE, "Content-Length: 20"))
        answer = await connection.answer()

    assert answer.status == 429
    assert "3 requests are in flight (limit in-flight=3, " in answer.message


async def test_a_full_gateway_can_be_administered(gateway: httpx.AsyncClient, deploy: Deploy, fill: Fill) -> None:
    await deploy(ECHO)
    await deploy(STEPS)
    await fill(2)
    await fill(1, "steps", words=["a"])

    assert (await gateway.get("/v1/models")).status_code == 429
    assert (await gateway.get("/healthz")).status_code == 200
    assert (await gateway.delete("/admin/v1/apps/echo")).status_code == 204


async def test_a_request_that_has_ended_makes_room(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)

    for _ in range(10):
        assert (await gateway.post(INVOKE, json=QUICK)).status_code == 200
        assert (await gateway.post(INVOKE, json={})).status_code == 400
        assert (await gateway.post("/v1/apps/none/invoke", json={})).status_code == 404


async def test_a_body_that_says_it_is_too_large_is_refused_unread(gateway: httpx.AsyncClient) -> None:
    async with raw(gateway) as connection:
        await connection.send(post(INVOKE, f"Content-Length: {MIB + 1}"))
        answer = await connection.answer()

        assert answer.status == 413
        assert answer.message == "the body has at least 1048577 bytes (limit body-mib=1, see `cornserve up --limit`)"
        await connection.send(b"x" * (MIB + 1))  # a client that does not listen while it sends
        assert await connection.is_closed()


async def test_a_body_that_grows_too_large_is_refused_when_it_is(gateway: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    response = await gateway.post(INVOKE, content=pieces())

    assert response.status_code == 413
    assert "limit body-mib=1" in response.json()["error"]["message"]


async def test_all_bodies_together_have_a_limit_and_make_room_when_they_end(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)
    body = b'{"text": "' + b"x" * (MIB - 20)
    async with raw(gateway) as one, raw(gateway) as two:
        for connection in (one, two):
            await connection.send(post(INVOKE, f"Content-Length: {MIB}") + body)
        await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 2.097"))

        refused = await gateway.post(INVOKE, content=body + b'"}')

        assert refused.status_code == 429
        assert "limit bodies-mib=2" in refused.json()["error"]["message"]
        assert await exposes(gateway, 'cornserve_gateway_error_responses_total{code="overloaded",status="429"} 1.0')

    await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0"))
    assert (await gateway.post(INVOKE, content=body + b'"}')).status_code == 200


@pytest.mark.parametrize("body", [b"[" + b"1," * 40_000 + b"1]", b'{"a": ' + b"[],[" * 20_000])
async def test_json_of_very_many_values_is_refused_unparsed(gateway: httpx.AsyncClient, body: bytes) -> None:
    response = await gateway.post("/v1/chat/completions", content=body)

    assert response.status_code == 413
    assert re.search(r"the body has \d+ values \(limit json-values=20000, ", response.json()["error"]["message"])


class TestTime:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(in_flight=1, receive_seconds=1, stall_seconds=1)

    @pytest.mark.parametrize("sent", [b"", b"PO", b"POST / HTTP/1.1\r\nHost: local", post(INVOKE, "Content-Length: 9")])
    async def test_a_request_that_does_not_arrive_is_given_up(self, gateway: httpx.AsyncClient, sent: bytes) -> None:
        async with raw(gateway) as connection:
            await connection.send(sent)

            answer = await connection.answer()

            assert answer.status == 408
            assert "did not arrive in time (limit receive-seconds=1, " in answer.message
            assert await connection.is_closed()

    async def test_a_second_request_that_does_not_arrive_is_not_told_so_in_the_middle_of_the_firsts_answer(
        self, gateway: httpx.AsyncClient, deploy: Deploy
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s", "seconds": 300}' % (b" word" * 1_000)
        async with raw(gateway) as connection, asyncio.timeout(60):
            await connection.send(post(INVOKE, "Accept: text/event-stream", f"Content-Length: {len(body)}") + body)
            await connection.reader.readuntil(b"data: ")
            await connection.send(post(INVOKE, "Content-Length: 9"))

            assert b"HTTP/1.1" not in await connection.reader.read()

    async def test_a_body_that_trickles_in_holds_no_place_and_is_given_up(
        self, gateway: httpx.AsyncClient, deploy: Deploy
    ) -> None:
        await deploy(ECHO)
        async with raw(gateway) as connection:
            await connection.send(post(INVOKE, "Content-Length: 1000000"))
            assert (await gateway.get("/healthz")).status_code == 200  # what was sent before has arrived
            answering = asyncio.create_task(connection.answer())
            while not answering.done():
                with suppress(ConnectionError):
                    await connection.send(b" ")
                assert (await gateway.post(INVOKE, json=QUICK)).status_code == 200

            assert (await answering).status == 408

    async def test_a_client_that_reads_nothing_is_cut_off_and_the_executor_is_free(
        self, gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s", "seconds": 300}' % (b"x" * 3 * MIB + b" word" * 1_000)
        async with raw(gateway) as connection:
            await connection.send(post(INVOKE, "Accept: text/event-stream", f"Content-Length: {len(body)}") + body)
            await until(lambda: executors.running() == 1)
            await until(lambda: executors.running() == 0)


class TestAnswers:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(bodies_mib=20)

    async def test_a_large_answer_counts_as_memory_until_it_is_read(
        self, gateway: httpx.AsyncClient, deploy: Deploy
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s"}' % (b"x" * 11 * MIB)
        async with raw(gateway) as connection:
            await connection.send(post(INVOKE, f"Content-Length: {len(body)}") + body)
            await until(lambda: exposes(gateway, 'cornserve_gateway_requests_total{app="echo",status="200"} 1.0'))
            assert await exposes(gateway, "cornserve_gateway_http_requests_in_flight 1.0")

            refused = await gateway.post(INVOKE, content=body)

            assert refused.status_code == 429
            assert "limit bodies-mib=20, " in refused.json()["error"]["message"]
            assert (await connection.answer()).status == 200
            await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0.0"))
            assert (await gateway.post(INVOKE, content=body)).status_code == 200

    async def test_a_client_that_has_sent_much_and_leaves_ends_its_request(
        self, gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
    ) -> None:
        await deploy(ECHO)
        body = b'{"text": "%s", "seconds": 300}' % (b"x" * 6 * MIB + b" word" * 1_000)
        async with raw(gateway) as connection:
            await connection.send(post(INVOKE, f"Content-Length: {len(body)}") + body)
            await until(lambda: executors.running() == 1)

        await until(lambda: executors.running() == 0)
        await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0.0"))


class TestConnections:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(connections=2)

    async def test_clients_beyond_the_limit_are_told_so(self, gateway: httpx.AsyncClient) -> None:
        async with raw(gateway), raw(gateway) as refused:
            answer = await refused.answer()

            assert answer.status == 429
            assert "2 clients are connected (limit connections=2, " in answer.message
            assert await refused.is_closed()


async def test_endless_headers_are_refused(gateway: httpx.AsyncClient) -> None:
    async with raw(gateway) as connection:
        await connection.send(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(40):
            await connection.send(b"x" * 4096)

        answer = await connection.answer()

        assert answer.status == 431
        assert "more than 65536 bytes" in answer.message


async def test_headers_that_arrive_at_once_are_bounded_too(gateway: httpx.AsyncClient) -> None:
    async with raw(gateway) as connection:
        await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 65536 + b"\r\n\r\n")

        assert (await connection.answer()).status == 431


async def test_only_headers_are_bounded_so(gateway: httpx.AsyncClient) -> None:
    """However the end of the head and a long body are cut into packets."""
    head, body = post("/v1/none", "Content-Length: 200000"), b" " * 200_000
    for cut in range(len(head) - 5, len(head) + 1):
        async with raw(gateway) as connection:
            await connection.send(head[:cut])
            await connection.send(head[cut:] + body)

            assert (await connection.answer()).status == 404
