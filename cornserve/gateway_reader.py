"""Finds all gateways of an instance, and reads a document of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from cornserve.home import Home
from cornserve.http_reader import HttpReader, ReadError
from cornserve.instance import Instance

KNOWN_SECONDS: Final = 5.0
"""The time for which `KnownGateways` returns the same addresses."""

FindGateways = Callable[[], Awaitable[Sequence[str]]]
"""Returns the URLs of all gateways. Raises OSError if they cannot be found."""

Document = TypeVar("Document")


async def fixed_gateways(addresses: Sequence[str]) -> list[str]:
    """Returns the URLs of gateways with known addresses, such as `127.0.0.1:8001`."""
    return [f"http://{address}" for address in addresses]


async def instance_gateways(home: Home) -> list[str]:
    """Returns the URLs of the gateways of the instance that runs in a home. Raises OSError if they are unknown."""
    instance = Instance.read(home)
    if instance is None:
        raise FileNotFoundError(f"{home.instance} does not describe the instance")
    return instance.gateways


class KnownGateways:
    """Keeps the addresses of gateways, because to find them is a request to the API server on Kubernetes.

    Args:
        find: finds all gateways.
    """

    def __init__(self, find: FindGateways) -> None:
        self._find = find
        self._urls: Sequence[str] = ()
        self._found_at = -KNOWN_SECONDS

    async def __call__(self) -> Sequence[str]:
        """Returns the URLs of all gateways, sorted. Raises OSError if they cannot be found."""
        if time.monotonic() - self._found_at >= KNOWN_SECONDS:
            self._urls = sorted(await self._find())
            self._found_at = time.monotonic()
        return self._urls


async def read_gateways(
    reader: HttpReader,
    urls: Sequence[str],
    path: str,
    parse: Callable[[bytes], Document],
    parameters: Mapping[str, str] | None = None,
) -> dict[str, Document | ReadError]:
    """Asks all gateways at once. Returns by URL the document of each, or the error of one that cannot be read.

    Args:
        parse: raises `ValueError` for another document.
    """

    async def read(url: str) -> Document | ReadError:
        try:
            return await reader.read(url + path, parse, parameters)
        except ReadError as error:
            return error

    return dict(zip(urls, await asyncio.gather(*map(read, urls)), strict=True))
