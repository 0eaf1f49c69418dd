"""Requests are rejected for missing or invalid hosts, and for too many or too long headers, extensions and trailers."""

from __future__ import annotations

import asyncio

import httpx2 as httpx
import pytest

from cornserve.access import Access
from cornserve.gateway.http.connection import HttpConnection
from cornserve.gateway.http.server import HttpServer
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import RawResponse, get, post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

INVOKE = "/v1/apps/echo/invoke"
BODY = b'9;a=b\r\n{"text": \r\n6\r\n"a b"}\r\n'


async def respond(gateway: httpx.AsyncClient, request: bytes, *, ends: bool = False) -> RawResponse:
    async with raw_connection(gateway) as connection:
        await connection.send(request)
        response = await connection.read_response()
        if ends:
            assert response.headers["connection"] == "close"
            assert await connection.ends()
        return response


@pytest.mark.parametrize(
    "gateway_options", [GatewayOptions(), GatewayOptions(access=Access(("k" * 16,), "t" * 32))], indirect=True
)
class TestHost:
    @pytest.mark.parametrize(
        "hosts",
        ["", "Host: localhost\r\nHost: localhost\r\n", "Host: a b\r\n", "Host: localhost/x\r\n", "Host: a@b\r\n"],
    )
    async def test_a_request_without_one_valid_host_is_rejected(self, gateway: httpx.AsyncClient, hosts: str) -> None:
        request = f"GET /healthz HTTP/1.1\r\n{hosts}Authorization: Bearer {'k' * 16}\r\n\r\n"

        response = await respond(gateway, request.encode(), ends=True)

        assert response.status == 400
        assert "Host" in response.message

    @pytest.mark.parametrize("host", ["Host: [::1]:8000", "Host: a_b.c-d~%20:80", "Host:", "HOST: localhost"])
    async def test_a_valid_host_is_accepted(self, gateway: httpx.AsyncClient, host: str) -> None:
        assert (await respond(gateway, f"GET /healthz HTTP/1.1\r\n{host}\r\n\r\n".encode())).status == 200

    async def test_http_1_0_needs_no_host(self, gateway: httpx.AsyncClient) -> None:
        assert (await respond(gateway, b"GET /healthz HTTP/1.0\r\n\r\n", ends=True)).status == 200


async def test_the_number_of_headers_is_limited(gateway: httpx.AsyncClient) -> None:
    accepted = await respond(gateway, get("/healthz", *["A: b"] * 99))
    rejected = await respond(gateway, get("/healthz", *["A: b"] * 100), ends=True)

    assert accepted.status == 200
    assert rejected.status == 431
    assert rejected.message == "the request has 101 headers: at most 100 are allowed"


@pytest.mark.parametrize(
    "body",
    [b"1;" + b"x" * 100_000, b"1;x\r\na\r\n" * 9 + b"2" + b";y=1" * 30_000, b"0\r\nA: " + b"b" * 100_000, b"1;x=1\r\n"],
)
async def test_chunk_extensions_and_trailers_are_limited(gateway: httpx.AsyncClient, body: bytes) -> None:
    if len(body) < 1000:  # many chunks with short extensions
        body = (b"1;" + b"x" * 100 + b"\r\na\r\n") * 2000
    response = await respond(gateway, post(INVOKE, "Transfer-Encoding: chunked") + body, ends=True)

    assert response.status == 431
    assert response.message == "the request's chunk extensions and trailers have more than 16384 bytes"


@pytest.mark.parametrize("received", [1, -4, -3, -2, -1, 1000, 100_000])
async def test_requests_that_are_received_together_do_not_count_for_each_other(
    server: HttpServer, received: int
) -> None:
    head, body = get("/healthz", "Content-Length: 150000"), b"x" * 150_000
    if received < 0:  # the end of the head is split
        received += len(head)
    request = head + body
    await until(lambda: server.started)
    others = set(server.server_state.connections)
    async with raw_connection(server.config.port) as client:
        await until(lambda: bool(server.server_state.connections - others))
        (connection,) = server.server_state.connections - others
        assert isinstance(connection, HttpConnection)

        connection.data_received(request[:1000])
        connection.data_received(request[1000:] + request[:received])
        connection.data_received(request[received:])

        assert [(await client.read_response()).status for _ in range(2)] == [200, 200]


async def test_a_body_in_small_chunks_is_accepted(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    spaces = b"1\r\n \r\n" * 50_000

    response = await respond(gateway, post(INVOKE, "Transfer-Encoding: chunked") + spaces + BODY + b"0\r\n\r\n")

    assert response.status == 200


async def test_trailers_are_dropped(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    trailers = b"0\r\nX-Request-Timeout: invalid\r\nHost: a\r\n\r\n"

    response = await respond(gateway, post(INVOKE, "Transfer-Encoding: chunked") + BODY + trailers)

    assert response.status == 200


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(
    "headers",
    [
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
        ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="),
    ],
)
async def test_upgrades_are_ignored(
    gateway: httpx.AsyncClient, deploy: Deploy, headers: tuple[str, ...], step: int
) -> None:
    await deploy(ECHO)
    body = b'{"text": "a b"}'
    requests = post(INVOKE, f"Content-Length: {len(body)}", *headers) + body
    requests += post(INVOKE, "Transfer-Encoding: chunked", *headers) + BODY + b"0\r\n\r\n"
    requests += get("/healthz", *headers) + get("/healthz", "Upgrade: h2c", "Connection: close, Upgrade")
    async with raw_connection(gateway) as connection:
        for start in range(0, len(requests), step):
            await connection.send(requests[start : start + step])
            await asyncio.sleep(0)

        responses = [await connection.read_response() for _ in range(4)]

        assert [response.status for response in responses] == [200] * 4
        assert all(b'"words_sent":2' in response.body for response in responses[:2])
        assert await connection.ends()


async def test_an_upgrade_of_an_invalid_target_is_rejected(gateway: httpx.AsyncClient) -> None:
    request = b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

    assert (await respond(gateway, request, ends=True)).status == 400


@pytest.mark.parametrize("before", [b"", get("/healthz")])
async def test_connect_is_rejected(gateway: httpx.AsyncClient, before: bytes) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(before + b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n\x16\x03")
        if before:
            assert (await connection.read_response()).status == 200
        response = await connection.read_response()

        assert (response.status, response.message) == (400, "the gateway does not support CONNECT: it is not a proxy")
        assert await connection.ends()


@pytest.mark.parametrize("encoding", ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked"])
async def test_other_transfer_encodings_than_chunked_are_rejected(gateway: httpx.AsyncClient, encoding: str) -> None:
    request = post(INVOKE, f"Transfer-Encoding: {encoding}") + BODY + b"0\r\n\r\n"

    assert (await respond(gateway, request, ends=True)).status == 400


@pytest.mark.parametrize("version", [" HTTP/2.0", " HTTP/0.9", ""])
async def test_other_versions_of_http_are_rejected(gateway: httpx.AsyncClient, version: str) -> None:
    request = f"GET /healthz{version}\r\nHost: localhost\r\n\r\n".encode()

    assert (await respond(gateway, request, ends=True)).status == 400
