"""Certificates are verified for the host name of the URL, not for the address of the connection."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.certificates import certificate
from tests.unit.gateway.image_files import image_file
from tests.unit.gateway.web_server import respond_with, web_server

FETCH = """# runs in a new process, which reads the trusted certificates when it starts
import asyncio, socket, sys
from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.fetch import MediaFetcher
from cornserve.gateway.media.inspection import RULES
from cornserve.gateway.media.resolver import HostResolver
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist

async def main(*urls):
    resolver = HostResolver(lambda host, port, *_: socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM))
    fetcher = MediaFetcher(Limits(), MediaAllowlist.parse(["127.0.0.1"]), resolver)
    for url in urls:
        try:
            print(len(await fetcher.fetch(url, RULES["image"], lambda size: None)))
        except MediaError as error:
            print(error.message)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_certificate_must_be_trusted_and_match_the_host(tmp_path: Path) -> None:
    png = image_file()
    trusted, tls = certificate(tmp_path, "images.example")
    async with web_server(tls=tls) as site:
        site.pages["/"] = respond_with(png)
        urls = [f"https://{host}:{site.port}/" for host in ("images.example", "other.example", "127.0.0.1")]

        output = await _fetch(*urls, trust=trusted)
        output += await _fetch(urls[0], trust=tmp_path / "none")

    rejected = "the download failed: the server's certificate is not valid"
    assert output == [str(len(png)), rejected, rejected, rejected]
    assert len(site.requests) == 1


async def _fetch(*urls: str, trust: Path) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FETCH, *urls),
        env=os.environ | {"SSL_CERT_FILE": str(trust)},
        stdout=asyncio.subprocess.PIPE,
    )
    return (await process.communicate())[0].decode().splitlines()
