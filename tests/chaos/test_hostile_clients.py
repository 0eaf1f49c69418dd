"""Clients that send malformed requests, broken HTTP and URLs of private addresses, while other clients are served."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

import httpx2 as httpx
import psutil
import pytest

from cornserve.limits import MIB
from tests.chaos.apps import echo, requests, twice
from tests.chaos.conftest import running_instance
from tests.chaos.form import by_form, seed
from tests.chaos.judge import violations
from tests.chaos.load import LoadClients
from tests.chaos.report import FaultRecorder, FaultResult, p99_ms
from tests.integration.cli.cli_instance import CliInstance
from tests.unit.gateway.malformed_requests import BROKEN_HTTP, malformed_requests, unexpected_response
from tests.unit.gateway.media.hostile_urls import HOSTILE_URLS
from tests.unit.gateway.sources import CHAT
from tests.unit.gateway.web_server import WebServer, endless, redirect, respond_with, silent, slow, web_server
from tests.waiting import until

MALFORMED = by_form(short=300, full=7000)
BROKEN = by_form(short=50, full=1000)
ROUNDS_OF_URLS = by_form(short=1, full=10)
AT_ONCE = 10
CLIENTS = 8
MAX_GROWTH_BYTES = 64 * MIB

VALID = (
    b"POST /v1/apps/echo/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 15\r\n\r\n{"text": "a b"}'
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    """Starts an instance that may fetch images from 127.0.0.1."""
    options = ("--media-from", "127.0.0.1", "--limit", "fetch-seconds=1", "--limit", "body-mib=1")
    directory = tmp_path_factory.mktemp("hostile")
    with running_instance(directory / "home", *options) as machine:
        for source in (echo(), twice(), CHAT):
            machine.deploy(source)
        yield machine


@asynccontextmanager
async def others_served(machine: CliInstance) -> AsyncIterator[LoadClients]:
    """Checks that all requests of well-behaved clients are served during the block, and that the gateway neither
    restarts, grows nor keeps connections."""
    [gateway] = machine.processes("cornserve.gateway")
    load = LoadClients(machine.url, requests("", seconds=0.02), clients=CLIENTS)
    async with load.running():
        await until(lambda: len(load.outcomes) > 10 * CLIENTS)
        before = gateway.memory_info().rss
        yield load
    assert violations(load.outcomes) == []
    assert [process.pid for process in machine.processes("cornserve.gateway")] == [gateway.pid]
    assert gateway.memory_info().rss - before < MAX_GROWTH_BYTES
    await until(lambda: not _clients(gateway, machine))


@pytest.mark.slow
async def test_malformed_requests_are_rejected(machine: CliInstance, record_fault: FaultRecorder) -> None:
    malformed = malformed_requests(seed(), MALFORMED)
    async with others_served(machine) as load, httpx.AsyncClient(base_url=machine.url, timeout=60) as client:

        async def send_some() -> list[str]:
            return [wrong for request in malformed if (wrong := await unexpected_response(client, request))]

        found = await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))

    assert [wrong for some in found for wrong in some] == []
    record_fault(_result("malformed request", MALFORMED, load, "4xx"))


@pytest.mark.slow
async def test_broken_http_is_rejected_or_ignored(machine: CliInstance, record_fault: FaultRecorder) -> None:
    """Broken messages are answered with an error, and messages that end early with nothing."""
    order = random.Random(seed())
    messages = iter([*BROKEN_HTTP, *(_damaged(order) for _ in range(BROKEN - len(BROKEN_HTTP)))])
    port = httpx.URL(machine.url).port
    assert port is not None
    async with others_served(machine) as load:

        async def send_some() -> list[str]:
            return [wrong for message in messages if (wrong := await _unexpected_answer(port, message))]

        found = await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))

    assert [wrong for some in found for wrong in some] == []
    record_fault(_result("broken HTTP", BROKEN, load, "4xx or closed"))


@pytest.mark.slow
async def test_hostile_urls_are_not_fetched(machine: CliInstance, record_fault: FaultRecorder) -> None:
    async with (
        others_served(machine) as load,
        web_server() as site,
        web_server("127.0.0.2") as inner,
        httpx.AsyncClient(base_url=machine.url, timeout=60) as client,
    ):
        urls = ROUNDS_OF_URLS * [*_urls_of_hostile_sites(site, inner), *_forbidden(HOSTILE_URLS)]
        random.Random(seed()).shuffle(urls)
        pending = iter(urls)

        async def send_some() -> list[str]:
            return [wrong for url in pending if (wrong := await _unexpected_image(client, url))]

        found = await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))
        assert inner.connections == 0
        await until(lambda: site.open == 0)

    assert [wrong for some in found for wrong in some] == []
    record_fault(_result("hostile image URL", len(urls), load, "400"))


def _forbidden(urls: dict[str, str]) -> list[str]:
    """Returns the URLs that may not be fetched although 127.0.0.1 is allowed."""
    return [url for url, message in urls.items() if "127.0.0.1" not in url and "localhost" not in url.lower()]


def _urls_of_hostile_sites(site: WebServer, inner: WebServer) -> list[str]:
    site.pages |= {
        "/endless": endless,
        "/slow": slow,
        "/silent": silent,
        "/loop": redirect("/loop"),
        "/inner": redirect(inner.url()),
        "/file": redirect("file:///etc/passwd"),
        "/text": respond_with(b"<html>", content_type="text/html"),
        "/empty": respond_with(content_type="image/png"),
        "/error": respond_with(status=500),
    }
    return [site.url(path) for path in site.pages]


async def _unexpected_image(client: httpx.AsyncClient, url: str) -> str | None:
    content = [{"type": "image_url", "image_url": {"url": url}}]
    body = {"model": "parrot", "messages": [{"role": "user", "content": content}]}
    response = await client.post("/v1/chat/completions", json=body)
    error = response.json().get("error", {})
    rejected = response.status_code == 400 and str(error.get("param")).startswith("messages[0].content[0]")
    return None if rejected and "root:" not in response.text else f"{url}: {response.status_code} {response.text[:200]}"


def _damaged(order: random.Random) -> bytes:
    """Returns a request that is cut, or of which bytes are replaced, removed or repeated."""
    message = bytearray(VALID)
    for _ in range(order.randrange(1, 4)):
        position = order.randrange(len(message))
        match order.randrange(4):
            case 0:
                del message[position:]
            case 1:
                message[position] = order.randrange(256)
            case 2:
                del message[position : position + order.randrange(1, 8)]
            case 3:
                message[position:position] = message[position : position + 20] * order.randrange(1, 50)
        if not message:
            return b"\r"
    return bytes(message)


async def _unexpected_answer(port: int, message: bytes) -> str | None:
    """Sends the message and closes the sending end. Returns the response if it is neither empty nor valid."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    with suppress(ConnectionError):  # The gateway may close the connection before it has read everything.
        writer.write(message)
        writer.write_eof()
        async with asyncio.timeout(60):
            received = await reader.read()
    writer.close()
    status = received[9:10]
    return (
        None
        if not received or (received.startswith(b"HTTP/1.1 ") and status in b"24")
        else f"{message!r}: {received!r}"
    )


def _clients(gateway: psutil.Process, machine: CliInstance) -> Sequence[object]:
    """Returns the connections of clients that the gateway holds."""
    port = httpx.URL(machine.url).port
    return [
        connection
        for connection in gateway.net_connections("tcp")
        if connection.laddr.port == port and connection.status != psutil.CONN_LISTEN
    ]


def _result(fault: str, count: int, load: LoadClients, outcome: str) -> FaultResult:
    """Returns a row with the p99 of the other clients. The requests of clients that take no part are all complete."""
    p99 = p99_ms(each.ended - each.started for each in load.outcomes)
    return FaultResult(fault, count, count + len(load.outcomes), f"{outcome}; other clients: complete", p99, leaks=0)
