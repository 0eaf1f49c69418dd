"""Certificates are checked for the name in the URL, although the connection is made to an address."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.unit.gateway.media.certificates import certificate
from tests.unit.gateway.pictures import picture
from tests.unit.gateway.web import answer, web

FETCH = """
import asyncio, socket, sys
from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.fetch import ImageFetcher
from cornserve.gateway.media.resolver import HostResolver
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist

async def main(*urls):
    resolver = HostResolver(lambda host, port, *_: socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM))
    fetcher = ImageFetcher(Limits(), MediaAllowlist.parse(["127.0.0.1"]), resolver)
    for url in urls:
        try:
            print(len((await fetcher.fetch(url, lambda size: None)).content))
        except ImageError as error:
            print(error.message)

asyncio.run(main(*sys.argv[1:]))
"""
"""In a process of its own, as what it trusts is read when it starts."""


async def test_a_certificate_has_to_be_trusted_and_for_the_urls_host(tmp_path: Path) -> None:
    png = picture()
    trusted, tls = certificate(tmp_path, "images.example")
    async with web(tls=tls) as site:
        site.pages["/"] = answer(png)
        urls = [f"https://{host}:{site.port}/" for host in ("images.example", "other.example", "127.0.0.1")]

        told = await _fetch(*urls, trust=trusted)
        told += await _fetch(urls[0], trust=tmp_path / "none")

    refused = "the download failed: the server's certificate is not valid"
    assert told == [str(len(png)), refused, refused, refused]
    assert len(site.asked) == 1


async def _fetch(*urls: str, trust: Path) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FETCH, *urls),
        env=os.environ | {"SSL_CERT_FILE": str(trust)},
        stdout=asyncio.subprocess.PIPE,
    )
    return (await process.communicate())[0].decode().splitlines()
