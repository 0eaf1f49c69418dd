"""Probes, and HEAD on every path that has GET."""

from __future__ import annotations

from importlib.metadata import version

import httpx2 as httpx
import pytest

from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import raw_connection
from tests.unit.gateway.sources import ECHO


@pytest.mark.parametrize("path", ["/healthz", "/health", "/livez", "/readyz"])
async def test_probes_respond(gateway: httpx.AsyncClient, path: str) -> None:
    assert (await gateway.get(path)).text == "ok"


async def test_the_version_is_that_of_the_package(gateway: httpx.AsyncClient) -> None:
    assert (await gateway.get("/version")).json() == {"version": version("cornserve")}


CHANGING = ("/metrics", "/docs", "/overview", "/live", "/series", "/costs", "/requests")
"""The ends of the paths whose content differs from one call to the next."""


async def test_head_has_the_status_and_the_headers_of_get(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    document = (await gateway.get("/openapi.json")).json()
    templates = [path for path, operations in document["paths"].items() if "get" in operations]
    paths = [template.replace("{name}", "echo").replace("{model}", "echo") for template in templates]
    assert "/v1/models/echo" in paths
    for path in [*paths, "/openapi.json", "/docs", "/v1/none", "/admin/v1/apps/none"]:
        head = await gateway.head(path)
        assert head.content == b""
        if path.endswith("/events"):
            assert head.status_code == 200
            continue
        get = await gateway.get(path)
        assert head.status_code == get.status_code
        assert head.headers["content-type"] == get.headers["content-type"]
        if not path.endswith(CHANGING):
            assert head.headers["content-length"] == get.headers["content-length"]


async def test_a_connection_is_reused_after_head(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    async with raw_connection(gateway) as connection:
        for path in ("/admin/v1/apps/echo/events", "/v1/models"):
            await connection.send(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = await connection.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await connection.read_response()).body == b"ok"


async def test_head_is_not_allowed_without_get(gateway: httpx.AsyncClient) -> None:
    assert (await gateway.head("/v1/chat/completions")).status_code == 405
