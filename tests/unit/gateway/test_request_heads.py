"""Requests are rejected for missing or invalid hosts, and for too many or too long headers, extensions and trailers."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from cornserve.access import Access
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import RawResponse, get, post, raw_connection
from tests.unit.gateway.sources import ECHO

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


@pytest.mark.parametrize("access", [Access(), Access(("k" * 16,), "t" * 32)])
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
