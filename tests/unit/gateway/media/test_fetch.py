"""Images are fetched from real sockets; whoever answers may do what he likes."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cornserve.gateway.errors import ApiError
from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.fetch import MAX_REDIRECTS, FetchedImage, ImageFetcher
from cornserve.gateway.media.resolver import HostResolver
from cornserve.limits import MIB, Limits
from cornserve.media_allowlist import MediaAllowlist
from tests.unit.gateway.pictures import picture
from tests.unit.gateway.web import Handler, Web, answer, endless, redirect, silent, slow, web
from tests.waiting import until

PNG = picture()
LIMITS = Limits(fetch_seconds=60, image_mib=1)
HASTY = Limits(fetch_seconds=1)


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    """A server on an address that the operator has allowed."""
    async with web() as site:
        yield site


@pytest.fixture
async def inner() -> AsyncIterator[Web]:
    """A server on an address that nobody has allowed."""
    async with web("127.0.0.2") as inner:
        inner.pages["/"] = answer(PNG)
        yield inner


def fetcher(*sources: str, resolver: HostResolver | None = None, limits: Limits = LIMITS) -> ImageFetcher:
    return ImageFetcher(limits, MediaAllowlist.parse(sources or ["public", "127.0.0.1"]), resolver)


async def fetched(url: str, *sources: str, resolver: HostResolver | None = None) -> FetchedImage:
    return await fetcher(*sources, resolver=resolver).fetch(url, lambda size: None)


async def failure(url: str, *sources: str, resolver: HostResolver | None = None) -> ImageError:
    with pytest.raises(ImageError) as caught:
        await fetched(url, *sources, resolver=resolver)
    return caught.value


def looked_up(*addresses: str) -> tuple[HostResolver, list[str]]:
    """HostResolver that lead to one of these addresses after the other, and the resolver that were asked for."""
    asked: list[str] = []

    def look_up(host: str, port: int, *how: Any) -> list[Any]:
        asked.append(host)
        return socket.getaddrinfo(addresses[min(len(asked), len(addresses)) - 1], port, type=socket.SOCK_STREAM)

    return HostResolver(look_up), asked


async def test_an_image_is_fetched_and_nothing_about_the_gateway_is_told(site: Web) -> None:
    site.pages["/a?b=%2F"] = answer(PNG, content_type="image/png; charset=x")

    assert await fetched(site.url("/a?b=%2F")) == (PNG, "image/png")
    head = dict(line.lower().split(": ") for line in site.asked[0].strip().split("\r\n")[1:])
    assert head.keys() == {"host", "accept", "accept-encoding", "user-agent", "connection"}
    assert head["accept-encoding"] == "identity"
    await until(lambda: site.open == 0)


async def test_redirects_are_followed(site: Web) -> None:
    site.pages["/"] = redirect("/next")
    site.pages["/next"] = redirect(site.url("/last"))
    site.pages["/last"] = answer(PNG)

    assert (await fetched(site.url())).content == PNG


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://169.254.169.254/latest/meta-data/", "host is not allowed"),
        ("http://localhost/", "host is not allowed"),
        ("http://LOCALHOST/", "host is not allowed"),
        ("http://127.0.0.2/", "host is not allowed"),
        ("http://127.1/", "has no valid host"),
        ("http://2130706433/", "has no valid host"),
        ("http://017700000002/", "has no valid host"),
        ("http://0x7f000002/", "host is not allowed"),
        ("http://0x7f.0.0.2/", "host is not allowed"),
        ("http://①②⑦.⓪.⓪.②/", "host is not allowed"),
        ("http://0.0.0.0/", "host is not allowed"),
        ("http://[::1]/", "host is not allowed"),
        ("http://[::]/", "host is not allowed"),
        ("http://[::ffff:127.0.0.1]/", "host is not allowed"),
        ("http://[::ffff:7f00:2]/", "host is not allowed"),
        ("http://[64:ff9b::7f00:1]/", "host is not allowed"),
        ("http://[2002:7f00:1::]/", "host is not allowed"),
        ("http://[fe80::1%25eth0]/", "has no valid host"),
        ("http://[fd00:ec2::254]/", "host is not allowed"),
        ("http://10.0.0.1/", "host is not allowed"),
        ("http://100.100.100.200/", "host is not allowed"),
        ("http://168.63.129.16/", "host is not allowed"),
        ("http://93.184.216.34:22/", "use 80 or 443"),
        ("http://user:secret@93.184.216.34/", "a user name or a password"),
        ("ftp://93.184.216.34/", "unsupported URL scheme 'ftp'"),
        ("file:///etc/passwd", "unsupported URL scheme 'file'"),
        ("javascript:alert(1)", "unsupported URL scheme 'javascript'"),
        ("//93.184.216.34/", "unsupported URL scheme ''"),
        ("image.png", "unsupported URL scheme ''"),
        ("http://", "has no valid host"),
        ("http:///path", "has no valid host"),
        ("http://a b/", "has no valid host"),
        ("http://h\x00/", "has no valid host"),
        ("http://%6c%6fcalhost/", "has no valid host"),
        ("http://x:99999/", "not a valid URL"),
        ("http://[::1/", "not a valid URL"),
        ("http://h\r\nX: y/", "not a valid URL"),
        ("http://h/" + "x" * 9000, "more than 8192 characters"),
    ],
)
async def test_what_is_to_be_fetched_from_nowhere_good_is_refused(url: str, message: str) -> None:
    error = await failure(url, "public")

    assert error.code == "invalid_image_url"
    assert message in error.message
    assert "secret" not in error.message


async def test_a_name_that_leads_to_a_private_address_is_refused_and_the_address_is_not_told(inner: Web) -> None:
    resolver, asked = looked_up("127.0.0.2")

    error = await failure(inner.url(host="images.example"), resolver=resolver)

    assert asked == ["images.example"]
    assert "host is not allowed" in error.message
    assert "127" not in error.message
    assert inner.connections == 0


async def test_a_name_is_looked_up_once_and_the_address_that_was_found_is_the_one_that_is_asked(
    site: Web, inner: Web
) -> None:
    site.pages["/"] = answer(PNG)
    resolver, asked = looked_up("127.0.0.1", "127.0.0.2")

    assert (await fetched(site.url(host="rebinds.example"), resolver=resolver)).content == PNG
    assert asked == ["rebinds.example"]
    assert f"rebinds.example:{site.port}" in site.asked[0].lower()


async def test_a_name_that_is_bound_anew_before_a_redirect_is_checked_anew(site: Web, inner: Web) -> None:
    site.pages["/"] = redirect(inner.url(host="rebinds.example"))
    resolver, asked = looked_up("127.0.0.1", "127.0.0.2")

    error = await failure(site.url(host="rebinds.example"), resolver=resolver)

    assert asked == ["rebinds.example"] * 2
    assert "host is not allowed" in error.message
    assert inner.connections == 0


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{port}/", "http://[::ffff:127.0.0.2]:{port}/", "http://0x7f000002:{port}"]
)
async def test_a_redirect_into_the_private_network_is_refused(site: Web, inner: Web, target: str) -> None:
    site.pages["/"] = redirect(target.format(port=inner.port))

    error = await failure(site.url())

    assert "host is not allowed" in error.message
    assert inner.connections == 0


@pytest.mark.parametrize(
    "target", ["ftp://x/", "file:///etc/passwd", "data:image/png;base64,AAAA", "", "http://[", "http://xn--/"]
)
async def test_a_redirect_to_what_is_no_such_url_is_refused(site: Web, target: str) -> None:
    site.pages["/"] = redirect(target)

    assert "the redirect has no valid http(s) URL" in (await failure(site.url())).message


async def test_redirects_end(site: Web) -> None:
    site.pages["/"] = redirect("/")

    assert f"more than {MAX_REDIRECTS} redirects" in (await failure(site.url())).message
    assert site.connections == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (answer(status=404), "status 404"),
        (answer(status=500), "status 500"),
        (answer(status=206), "status 206"),
        (answer(PNG, content_length=str(len(PNG) + 1)), "closed the connection"),
        (answer(PNG, content_length="x"), "not valid HTTP"),
        (answer(PNG, content_length=str(MIB + 1)), "limit image-mib=1, "),
        (answer(gzip.compress(bytes(MIB)), content_encoding="gzip"), "compressed the response"),
        (endless, "limit image-mib=1, "),
        (answer(x="y" * 20_000), "not valid HTTP"),
    ],
)
async def test_an_answer_that_is_no_image_is_told(site: Web, page: Handler, message: str) -> None:
    site.pages["/"] = page

    assert message in (await failure(site.url())).message
    await until(lambda: site.open == 0)


@pytest.mark.parametrize("page", [slow, silent])
async def test_an_answer_that_takes_long_is_given_up(site: Web, page: Handler) -> None:
    site.pages["/"] = page

    with pytest.raises(ImageError, match=r"did not complete in time \(limit fetch-seconds=1, "):
        await fetcher(limits=HASTY).fetch(site.url(), lambda size: None)
    await until(lambda: site.open == 0)


async def test_a_server_that_speaks_something_else_is_told(site: Web) -> None:
    async def other(writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")

    site.pages["/"] = other

    assert "not valid HTTP" in (await failure(site.url())).message


async def test_a_host_that_nobody_knows_is_told() -> None:
    def unknown(*_: object) -> list[Any]:
        raise socket.gaierror("no such name")

    assert "unknown host" in (await failure("http://nobody.example/", resolver=HostResolver(unknown))).message
    assert "unknown host" in (await failure(f"http://{'x' * 70}.example/")).message


async def test_a_name_that_takes_long_is_given_up() -> None:
    is_over = threading.Event()

    def hangs(*_: object) -> list[Any]:
        is_over.wait()
        return []

    try:
        with pytest.raises(ImageError, match="did not complete in time"):
            await fetcher(resolver=HostResolver(hangs), limits=HASTY).fetch("http://slow.example/", lambda size: None)
    finally:
        is_over.set()


async def test_a_host_that_refuses_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert "the server does not respond" in (await failure(f"http://127.0.0.1:{port}/")).message


async def test_an_operator_names_hosts_and_networks(site: Web) -> None:
    site.pages["/"] = answer(PNG)
    resolver, _ = looked_up("127.0.0.1")
    by_name = site.url(host="images.example")

    assert (await fetched(by_name, "images.example", resolver=resolver)).content == PNG
    assert (await fetched(by_name, "127.0.0.0/8", resolver=resolver)).content == PNG
    assert "host is not allowed" in (await failure(by_name, "public", "other.example", resolver=resolver)).message
    assert "host is not allowed" in (await failure("http://93.184.216.34/", "images.example")).message
    assert "this gateway does not fetch images" in (await failure(by_name, "none")).message


async def test_proxies_of_the_environment_are_not_asked(site: Web, inner: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", inner.url())
    site.pages["/"] = answer(PNG)

    await fetched(site.url())

    assert inner.connections == 0


async def test_so_many_are_fetched_at_once(site: Web) -> None:
    gate = asyncio.Event()

    async def waits(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer(PNG)(writer)

    site.pages["/"] = waits
    few = fetcher(limits=Limits(fetches=2))
    all_of_them = [asyncio.create_task(few.fetch(site.url(), lambda size: None)) for _ in range(5)]

    await until(lambda: len(site.asked) == 2)
    gate.set()

    assert len(await asyncio.gather(*all_of_them)) == 5
    assert site.connections == 5


async def test_a_fetch_that_is_cancelled_leaves_no_connection(site: Web) -> None:
    site.pages["/"] = silent
    fetching = asyncio.create_task(fetched(site.url()))
    await until(lambda: site.open == 1)

    fetching.cancel()

    await until(lambda: site.open == 0)


async def test_bytes_are_counted_as_they_come_and_may_be_refused(site: Web) -> None:
    site.pages["/"] = endless
    taken = 0

    def take(size: int) -> None:
        nonlocal taken
        taken += size
        if taken > 300_000:
            raise ApiError(429, "full")

    with pytest.raises(ApiError, match="full"):
        await fetcher().fetch(site.url(), take)
    assert taken < 600_000
