"""Errors of all paths have Anthropic's format for clients of Anthropic's API, which send its version."""

from __future__ import annotations

import json

import httpx2 as httpx
import pytest

from cornserve.access import Access
from cornserve.gateway.http.head_limits import MAX_HEAD_BYTES
from cornserve.limits import MIB, Limits
from tests.unit.gateway.raw_http import RawResponse, post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions

KEY, TOKEN = "k" * 16, "t" * 32
VERSION = {"anthropic-version": "2023-06-01"}
HEADERS = {**VERSION, "x-api-key": KEY}


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    return GatewayOptions(Limits(body_mib=1), Access((KEY,), TOKEN))


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "kind"),
    [
        ("GET", "/v1/models", VERSION, 401, "authentication_error"),
        ("GET", "/v1/models/none", HEADERS, 404, "not_found_error"),
        ("GET", "/v1/nothing", HEADERS, 404, "not_found_error"),
        ("PUT", "/v1/models", HEADERS, 405, "invalid_request_error"),
    ],
)
async def test_an_error_has_anthropics_format(
    gateway: httpx.AsyncClient, method: str, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    response = await gateway.request(method, path, headers=headers)

    assert response.status_code == status
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["request_id"] == response.headers["request-id"]
    other = await gateway.request(method, path, headers={name: headers[name] for name in headers.keys() - VERSION})
    assert other.json()["error"]["message"] == body["error"]["message"]
    assert "code" in other.json()["error"]


async def test_a_body_that_is_too_large_is_refused_in_anthropics_format(gateway: httpx.AsyncClient) -> None:
    fields = [f"{name}: {value}" for name, value in HEADERS.items()]
    async with raw_connection(gateway) as connection:
        await connection.send(post("/v1/chat/completions", f"Content-Length: {MIB + 1}", *fields))
        response = await connection.read_response()

    assert response.status == 413
    assert kind_of(response) == "request_too_large"


async def test_headers_that_are_too_large_are_refused_in_anthropics_format(gateway: httpx.AsyncClient) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(post("/v1/messages", f"X-Long: {'x' * MAX_HEAD_BYTES}"))
        response = await connection.read_response()

    assert response.status == 431
    assert kind_of(response) == "invalid_request_error"


async def test_a_request_that_is_not_valid_http_is_refused_in_anthropics_format(gateway: httpx.AsyncClient) -> None:
    fields = [f"{name}: {value}" for name, value in HEADERS.items()]
    async with raw_connection(gateway) as connection:
        await connection.send(post("/v1/chat/completions", *fields, "Content-Length: 1", "Content-Length: 2"))
        response = await connection.read_response()

    assert response.status == 400
    assert kind_of(response) == "invalid_request_error"


def kind_of(response: RawResponse) -> str:
    """Returns the type of an error in Anthropic's format, after a check of its id."""
    body = json.loads(response.body)
    assert body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"]
    kind: str = body["error"]["type"]
    return kind
