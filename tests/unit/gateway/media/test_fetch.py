"""Fetches images from real sockets, with servers that respond arbitrarily."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from cornserve.gateway.errors import ApiError
from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.fetch import MAX_REDIRECTS, MediaFetcher
from cornserve.gateway.media.inspection import RULES
from cornserve.gateway.media.resolver import HostResolver
from cornserve.limits import MIB, Limits
from cornserve.media_allowlist import MediaAllowlist
from tests.loop_clock import LoopClock
from tests.unit.gateway.image_files import image_file
from tests.unit.gateway.media.hostile_urls import HOSTILE_URLS
from tests.unit.gateway.web_server import (
    PageHandler,
    WebServer,
    endless,
    redirect,
    respond_with,
    silent,
    slow,
    web_server,
)
from tests.waiting import until

PNG = image_file()
LIMITS = Limits(fetch_seconds=60, image_mib=1)


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncIterator[WebServer]:
    """Runs a server at an allowed address."""
    async with web_server() as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def inner() -> AsyncIterator[WebServer]:
    """Runs a server at an address that is not allowed."""
    async with web_server("127.0.0.2") as inner:
        inner.pages["/"] = respond_with(PNG)
        yield inner


def fetcher(*sources: str, resolver: HostResolver | None = None, limits: Limits = LIMITS) -> MediaFetcher:
    return MediaFetcher(limits, MediaAllowlist.parse(sources or ["public", "127.0.0.1"]), resolver)


async def fetch_image(url: str, *sources: str, resolver: HostResolver | None = None) -> bytes:
    return await fetcher(*sources, resolver=resolver).fetch(url, RULES["image"], lambda size: None)


async def fetch_error(url: str, *sources: str, resolver: HostResolver | None = None) -> MediaError:
    with pytest.raises(MediaError) as caught:
        await fetch_image(url, *sources, resolver=resolver)
    return caught.value


def resolver_to(*addresses: str) -> tuple[HostResolver, list[str]]:
    """Returns a resolver that returns these addresses one by one, and the list of resolved names."""
    resolved: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any) -> list[Any]:
        resolved.append(host)
        return socket.getaddrinfo(addresses[min(len(resolved), len(addresses)) - 1], port, type=socket.SOCK_STREAM)

    return HostResolver(getaddrinfo), resolved


async def test_a_fetch_reveals_nothing_about_the_gateway(site: WebServer) -> None:
    site.pages["/a?b=%2F"] = respond_with(PNG, content_type="image/png; charset=x")

    assert await fetch_image(site.url("/a?b=%2F")) == PNG
    head = dict(line.lower().split(": ") for line in site.requests[0].strip().split("\r\n")[1:])
    assert head.keys() == {"host", "accept", "accept-encoding", "user-agent", "connection"}
    assert head["accept-encoding"] == "identity"
    await until(lambda: site.open == 0)


async def test_redirects_are_followed(site: WebServer) -> None:
    site.pages["/"] = redirect("/next")
    site.pages["/next"] = redirect(site.url("/last"))
    site.pages["/last"] = respond_with(PNG)

    assert await fetch_image(site.url()) == PNG


@pytest.mark.parametrize(("url", "message"), HOSTILE_URLS.items())
async def test_a_url_that_is_not_allowed_is_rejected(url: str, message: str) -> None:
    error = await fetch_error(url, "public")

    assert error.code("image") == "invalid_image_url"
    assert message in error.message
    assert "secret" not in error.message


async def test_a_name_with_a_private_address_is_rejected_without_revealing_the_address(inner: WebServer) -> None:
    resolver, resolved = resolver_to("127.0.0.2")

    error = await fetch_error(inner.url(host="images.example"), resolver=resolver)

    assert resolved == ["images.example"]
    assert "host is not allowed" in error.message
    assert "127" not in error.message
    assert inner.connections == 0


async def test_a_name_is_resolved_once_and_its_checked_address_is_used(site: WebServer, inner: WebServer) -> None:
    site.pages["/"] = respond_with(PNG)
    resolver, resolved = resolver_to("127.0.0.1", "127.0.0.2")

    assert await fetch_image(site.url(host="rebinds.example"), resolver=resolver) == PNG
    assert resolved == ["rebinds.example"]
    assert f"rebinds.example:{site.port}" in site.requests[0].lower()


async def test_a_rebound_name_is_checked_again_after_a_redirect(site: WebServer, inner: WebServer) -> None:
    site.pages["/"] = redirect(inner.url(host="rebinds.example"))
    resolver, resolved = resolver_to("127.0.0.1", "127.0.0.2")

    error = await fetch_error(site.url(host="rebinds.example"), resolver=resolver)

    assert resolved == ["rebinds.example"] * 2
    assert "host is not allowed" in error.message
    assert inner.connections == 0


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{port}/", "http://[::ffff:127.0.0.2]:{port}/", "http://0x7f000002:{port}"]
)
async def test_a_redirect_to_a_private_address_is_rejected(site: WebServer, inner: WebServer, target: str) -> None:
    site.pages["/"] = redirect(target.format(port=inner.port))

    error = await fetch_error(site.url())

    assert "host is not allowed" in error.message
    assert inner.connections == 0


@pytest.mark.parametrize(
    "target", ["ftp://x/", "file:///etc/passwd", "data:image/png;base64,AAAA", "", "http://[", "http://xn--/"]
)
async def test_a_redirect_to_an_invalid_url_is_rejected(site: WebServer, target: str) -> None:
    site.pages["/"] = redirect(target)

    assert "the redirect has no valid http(s) URL" in (await fetch_error(site.url())).message


async def test_the_number_of_redirects_is_limited(site: WebServer) -> None:
    site.pages["/"] = redirect("/")

    assert f"more than {MAX_REDIRECTS} redirects" in (await fetch_error(site.url())).message
    assert site.connections == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (respond_with(status=404), "status 404"),
        (respond_with(status=500), "status 500"),
        (respond_with(status=206), "status 206"),
        (respond_with(PNG, content_length=str(len(PNG) + 1)), "closed the connection"),
        (respond_with(PNG, content_length="x"), "not valid HTTP"),
        (respond_with(PNG, content_length=str(MIB + 1)), "limit image-mib=1, "),
        (respond_with(gzip.compress(bytes(MIB)), content_encoding="gzip"), "compressed the response"),
        (endless, "limit image-mib=1, "),
        (respond_with(x="y" * 20_000), "not valid HTTP"),
    ],
)
async def test_an_invalid_response_is_an_error_with_its_reason(
    site: WebServer, page: PageHandler, message: str
) -> None:
    site.pages["/"] = page

    assert message in (await fetch_error(site.url())).message
    await until(lambda: site.open == 0)


@pytest.mark.parametrize("page", [slow, silent])
async def test_a_slow_response_times_out(site: WebServer, page: PageHandler, clock: LoopClock) -> None:
    site.pages["/"] = page
    fetch = asyncio.create_task(fetch_image(site.url()))
    await until(lambda: site.open == 1)

    clock.advance(LIMITS.fetch_seconds)

    with pytest.raises(MediaError, match=r"did not complete in time \(limit fetch-seconds=60, "):
        await fetch
    await until(lambda: site.open == 0)


async def test_a_server_without_http_is_an_error(site: WebServer) -> None:
    async def send_smtp(writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")

    site.pages["/"] = send_smtp

    assert "not valid HTTP" in (await fetch_error(site.url())).message


async def test_an_unknown_host_is_an_error() -> None:
    def fail(*_: object) -> list[Any]:
        raise socket.gaierror("no such name")

    assert "unknown host" in (await fetch_error("http://nobody.example/", resolver=HostResolver(fail))).message
    assert "unknown host" in (await fetch_error(f"http://{'x' * 70}.example/")).message


async def test_a_slow_name_resolution_times_out(clock: LoopClock) -> None:
    begins, is_over = threading.Event(), threading.Event()

    def hang(*_: object) -> list[Any]:
        begins.set()
        is_over.wait()
        return []

    fetch = asyncio.create_task(fetch_image("http://slow.example/", resolver=HostResolver(hang)))
    await until(begins.is_set)

    try:
        clock.advance(LIMITS.fetch_seconds)
        with pytest.raises(MediaError, match="did not complete in time"):
            await fetch
    finally:
        is_over.set()


async def test_a_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert "the server does not respond" in (await fetch_error(f"http://127.0.0.1:{port}/")).message


async def test_an_operator_may_allow_hosts_and_networks(site: WebServer) -> None:
    site.pages["/"] = respond_with(PNG)
    resolver, _ = resolver_to("127.0.0.1")
    by_name = site.url(host="images.example")

    assert await fetch_image(by_name, "images.example", resolver=resolver) == PNG
    assert await fetch_image(by_name, "127.0.0.0/8", resolver=resolver) == PNG
    assert "host is not allowed" in (await fetch_error(by_name, "public", "other.example", resolver=resolver)).message
    assert "host is not allowed" in (await fetch_error("http://93.184.216.34/", "images.example")).message
    assert "this gateway does not fetch media" in (await fetch_error(by_name, "none")).message


async def test_proxies_of_the_environment_are_ignored(
    site: WebServer, inner: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", inner.url())
    site.pages["/"] = respond_with(PNG)

    await fetch_image(site.url())

    assert inner.connections == 0


async def test_the_number_of_concurrent_fetches_is_limited(site: WebServer) -> None:
    may_respond = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        await may_respond.wait()
        await respond_with(PNG)(writer)

    site.pages["/"] = wait
    limited = fetcher(limits=Limits(fetches=2))
    fetches = [asyncio.create_task(limited.fetch(site.url(), RULES["image"], lambda size: None)) for _ in range(5)]

    await until(lambda: len(site.requests) == 2)
    may_respond.set()

    assert len(await asyncio.gather(*fetches)) == 5
    assert site.connections == 5


async def test_a_cancelled_fetch_closes_its_connection(site: WebServer) -> None:
    site.pages["/"] = silent
    fetching = asyncio.create_task(fetch_image(site.url()))
    await until(lambda: site.open == 1)

    fetching.cancel()

    await until(lambda: site.open == 0)


async def test_received_bytes_are_reserved_as_they_arrive(site: WebServer) -> None:
    site.pages["/"] = endless
    reserved = 0

    def reserve(size: int) -> None:
        nonlocal reserved
        reserved += size
        if reserved > 300_000:
            raise ApiError(429, "full")

    with pytest.raises(ApiError, match="full"):
        await fetcher().fetch(site.url(), RULES["image"], reserve)
    assert reserved < 600_000
