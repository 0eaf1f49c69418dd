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
from cornserve.gateway.media.fetch import MAX_REDIRECTS, Fetched, Fetcher
from cornserve.gateway.media.names import Names
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


def fetcher(*sources: str, names: Names | None = None, limits: Limits = LIMITS) -> Fetcher:
    return Fetcher(limits, MediaAllowlist.parse(sources or ["public", "127.0.0.1"]), names)


async def fetched(url: str, *sources: str, names: Names | None = None) -> Fetched:
    return await fetcher(*sources, names=names).fetch(url, lambda size: None)


async def failure(url: str, *sources: str, names: Names | None = None) -> ImageError:
    with pytest.raises(ImageError) as caught:
        await fetched(url, *sources, names=names)
    return caught.value


def looked_up(*addresses: str) -> tuple[Names, list[str]]:
    """Names that lead to one of these addresses after the other, and the names that were asked for."""
    asked: list[str] = []

    def look_up(host: str, port: int, *how: Any) -> list[Any]:
        asked.append(host)
        return socket.getaddrinfo(addresses[min(len(asked), len(addresses)) - 1], port, type=socket.SOCK_STREAM)

    return Names(look_up), asked


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
        ("http://169.254.169.254/latest/meta-data/", "not fetched from there"),
        ("http://localhost/", "not fetched from there"),
        ("http://LOCALHOST/", "not fetched from there"),
        ("http://127.0.0.2/", "not fetched from there"),
        ("http://127.1/", "names no host"),
        ("http://2130706433/", "names no host"),
        ("http://017700000002/", "names no host"),
        ("http://0x7f000002/", "not fetched from there"),
        ("http://0x7f.0.0.2/", "not fetched from there"),
        ("http://①②⑦.⓪.⓪.②/", "not fetched from there"),
        ("http://0.0.0.0/", "not fetched from there"),
        ("http://[::1]/", "not fetched from there"),
        ("http://[::]/", "not fetched from there"),
        ("http://[::ffff:127.0.0.1]/", "not fetched from there"),
        ("http://[::ffff:7f00:2]/", "not fetched from there"),
        ("http://[64:ff9b::7f00:1]/", "not fetched from there"),
        ("http://[2002:7f00:1::]/", "not fetched from there"),
        ("http://[fe80::1%25eth0]/", "names no host"),
        ("http://[fd00:ec2::254]/", "not fetched from there"),
        ("http://10.0.0.1/", "not fetched from there"),
        ("http://100.100.100.200/", "not fetched from there"),
        ("http://168.63.129.16/", "not fetched from there"),
        ("http://93.184.216.34:22/", "from ports 80 and 443 only"),
        ("http://user:secret@93.184.216.34/", "a user's name or password"),
        ("ftp://93.184.216.34/", "begins with https:, http: or data:, not ftp:"),
        ("file:///etc/passwd", "begins with https:, http: or data:, not file:"),
        ("javascript:alert(1)", "not javascript:"),
        ("//93.184.216.34/", "begins with https:, http: or data:"),
        ("image.png", "begins with https:, http: or data:"),
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://a b/", "names no host"),
        ("http://h\x00/", "names no host"),
        ("http://%6c%6fcalhost/", "names no host"),
        ("http://x:99999/", "this is no URL"),
        ("http://[::1/", "this is no URL"),
        ("http://h\r\nX: y/", "this is no URL"),
        ("http://h/" + "x" * 9000, "more than 8192 characters"),
    ],
)
async def test_what_is_to_be_fetched_from_nowhere_good_is_refused(url: str, message: str) -> None:
    error = await failure(url, "public")

    assert error.code == "invalid_image_url"
    assert message in error.message
    assert "secret" not in error.message


async def test_a_name_that_leads_to_a_private_address_is_refused_and_the_address_is_not_told(inner: Web) -> None:
    names, asked = looked_up("127.0.0.2")

    error = await failure(inner.url(host="images.example"), names=names)

    assert asked == ["images.example"]
    assert "not fetched from there" in error.message
    assert "127" not in error.message
    assert inner.connections == 0


async def test_a_name_is_looked_up_once_and_the_address_that_was_found_is_the_one_that_is_asked(
    site: Web, inner: Web
) -> None:
    site.pages["/"] = answer(PNG)
    names, asked = looked_up("127.0.0.1", "127.0.0.2")

    assert (await fetched(site.url(host="rebinds.example"), names=names)).content == PNG
    assert asked == ["rebinds.example"]
    assert f"rebinds.example:{site.port}" in site.asked[0].lower()


async def test_a_name_that_is_bound_anew_before_a_redirect_is_checked_anew(site: Web, inner: Web) -> None:
    site.pages["/"] = redirect(inner.url(host="rebinds.example"))
    names, asked = looked_up("127.0.0.1", "127.0.0.2")

    error = await failure(site.url(host="rebinds.example"), names=names)

    assert asked == ["rebinds.example"] * 2
    assert "not fetched from there" in error.message
    assert inner.connections == 0


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{port}/", "http://[::ffff:127.0.0.2]:{port}/", "http://0x7f000002:{port}"]
)
async def test_a_redirect_into_the_private_network_is_refused(site: Web, inner: Web, target: str) -> None:
    site.pages["/"] = redirect(target.format(port=inner.port))

    error = await failure(site.url())

    assert "not fetched from there" in error.message
    assert inner.connections == 0


@pytest.mark.parametrize(
    "target", ["ftp://x/", "file:///etc/passwd", "data:image/png;base64,AAAA", "", "http://[", "http://xn--/"]
)
async def test_a_redirect_to_what_is_no_such_url_is_refused(site: Web, target: str) -> None:
    site.pages["/"] = redirect(target)

    assert "redirected to what is no URL that could be fetched" in (await failure(site.url())).message


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
        (answer(PNG, content_length=str(len(PNG) + 1)), "broke off"),
        (answer(PNG, content_length="x"), "no HTTP"),
        (answer(PNG, content_length=str(MIB + 1)), "limit image-mib=1, "),
        (answer(gzip.compress(bytes(MIB)), content_encoding="gzip"), "compresses it"),
        (endless, "limit image-mib=1, "),
        (answer(x="y" * 20_000), "no HTTP"),
    ],
)
async def test_an_answer_that_is_no_image_is_told(site: Web, page: Handler, message: str) -> None:
    site.pages["/"] = page

    assert message in (await failure(site.url())).message
    await until(lambda: site.open == 0)


@pytest.mark.parametrize("page", [slow, silent])
async def test_an_answer_that_takes_long_is_given_up(site: Web, page: Handler) -> None:
    site.pages["/"] = page

    with pytest.raises(ImageError, match=r"did not arrive in time \(limit fetch-seconds=1, "):
        await fetcher(limits=HASTY).fetch(site.url(), lambda size: None)
    await until(lambda: site.open == 0)


async def test_a_server_that_speaks_something_else_is_told(site: Web) -> None:
    async def other(writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")

    site.pages["/"] = other

    assert "no HTTP" in (await failure(site.url())).message


async def test_a_host_that_nobody_knows_is_told() -> None:
    def unknown(*_: object) -> list[Any]:
        raise socket.gaierror("no such name")

    assert "its host is not known" in (await failure("http://nobody.example/", names=Names(unknown))).message
    assert "its host is not known" in (await failure(f"http://{'x' * 70}.example/")).message


async def test_a_name_that_takes_long_is_given_up() -> None:
    is_over = threading.Event()

    def hangs(*_: object) -> list[Any]:
        is_over.wait()
        return []

    try:
        with pytest.raises(ImageError, match="did not arrive in time"):
            await fetcher(names=Names(hangs), limits=HASTY).fetch("http://slow.example/", lambda size: None)
    finally:
        is_over.set()


async def test_a_host_that_refuses_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert "its host does not answer" in (await failure(f"http://127.0.0.1:{port}/")).message


async def test_an_operator_names_hosts_and_networks(site: Web) -> None:
    site.pages["/"] = answer(PNG)
    names, _ = looked_up("127.0.0.1")
    by_name = site.url(host="images.example")

    assert (await fetched(by_name, "images.example", names=names)).content == PNG
    assert (await fetched(by_name, "127.0.0.0/8", names=names)).content == PNG
    assert "not fetched from there" in (await failure(by_name, "public", "other.example", names=names)).message
    assert "not fetched from there" in (await failure("http://93.184.216.34/", "images.example")).message
    assert "this gateway fetches no images" in (await failure(by_name, "none")).message


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
