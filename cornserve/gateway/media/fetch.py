"""Images that a request names by an http(s) URL.

The client chooses the URL, and the gateway stands where the client does not: see `door`. Beyond that, whoever answers
may be slow, endless or wrong: time, size and redirects are bounded, and nothing is taken but an image as it is, not
compressed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
from yarl import URL

from cornserve.gateway.media.door import ClosedError, Door
from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.names import Names
from cornserve.limits import MIB, Limits
from cornserve.media_allowlist import MediaAllowlist

MAX_REDIRECTS = 3
MAX_URL = 8192
"""Characters."""

_HOST = re.compile(r"[a-zA-Z0-9._:-]{1,253}")
_REDIRECTS = {301, 302, 303, 307, 308}
_HEADERS = {
    "Accept": "image/png, image/jpeg, image/webp, image/gif",
    "Accept-Encoding": "identity",
    "User-Agent": "cornserve",
}


class Fetched(NamedTuple):
    content: bytes
    media_type: str
    """What the server says it is; "" where it says nothing."""


class Fetcher:
    """Downloads within the limits, so many at once.

    Args:
        sources: by default, the public internet.
        names: how names of hosts become addresses.
    """

    def __init__(self, limits: Limits, sources: MediaAllowlist | None = None, names: Names | None = None) -> None:
        self.limits = limits
        self._max_bytes = limits.image_mib * MIB
        self._sources = sources or MediaAllowlist()
        self._names = names or Names()
        self._places = asyncio.Semaphore(limits.fetches)

    async def fetch(self, url: str, take_bytes: Callable[[int], None]) -> Fetched:
        """Raises an `ImageError`.

        Args:
            take_bytes: is told how many bytes have arrived, whenever some have, and may refuse them by an error.
        """
        place = _parse(url)
        if self._sources.is_empty:
            raise ImageError("invalid_image_url", "this gateway fetches no images: send a data: URL")
        async with self._places:
            try:
                async with asyncio.timeout(self.limits.fetch_seconds):
                    return await self._follow(place, take_bytes)
            except TimeoutError:
                raise _failed(f"it did not arrive in time ({self.limits.hint('fetch-seconds')})") from None

    async def _follow(self, url: URL, take_bytes: Callable[[int], None]) -> Fetched:
        for _ in range(MAX_REDIRECTS + 1):
            async with self._get(url) as response:
                if response.status not in _REDIRECTS:
                    return await self._read(response, take_bytes)
                url = _next(url, response.headers.get("Location", ""))
        raise _failed(f"there are more than {MAX_REDIRECTS} redirects")

    @asynccontextmanager
    async def _get(self, url: URL) -> AsyncIterator[aiohttp.ClientResponse]:
        door = Door(url.host or "", self._sources)
        connector = aiohttp.TCPConnector(
            resolver=self._names, socket_factory=door.open, use_dns_cache=False, force_close=True
        )
        no_other_timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    timeout=no_other_timeout,
                    trust_env=False,
                ) as session,
                session.get(url, headers=_HEADERS, allow_redirects=False) as response,
            ):
                yield response
        except aiohttp.ClientError as error:
            raise _explained(error) from error

    async def _read(self, response: aiohttp.ClientResponse, take_bytes: Callable[[int], None]) -> Fetched:
        if response.status != 200:
            raise _failed(f"the server answered with status {response.status}")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _failed("the server compresses it, though it was asked not to")
        if (response.content_length or 0) > self._max_bytes:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        async for piece in response.content.iter_any():
            take_bytes(len(piece))
            size += len(piece)
            if size > self._max_bytes:
                raise self._too_large()
            pieces.append(piece)
        return Fetched(b"".join(pieces), response.headers.get("Content-Type", "").partition(";")[0].strip().lower())

    def _too_large(self) -> ImageError:
        return ImageError("image_too_large", f"it has too many bytes ({self.limits.hint('image-mib')})")


def _parse(text: str) -> URL:
    if len(text) > MAX_URL:
        raise ImageError("invalid_image_url", f"the URL has more than {MAX_URL} characters")
    try:
        return _checked(_url(text))
    except ValueError:
        raise ImageError("invalid_image_url", "this is no URL: https://…, http://… or data:image/…;base64,…") from None


def _url(text: str) -> URL:
    """As it is written, where that can be sent: servers may have signed it."""
    return URL(text, encoded=text.isascii() and text.isprintable() and " " not in text)


def _checked(url: URL) -> URL:
    if url.scheme not in ("http", "https"):
        given = f", not {url.scheme[:20]}:" if url.scheme else ""
        raise ImageError("invalid_image_url", f"an image's URL begins with https:, http: or data:{given}")
    if not _HOST.fullmatch(url.raw_host or "") or not url.host:  # which is decoded only now, and may not be decodable
        raise ImageError("invalid_image_url", "the URL names no host that could be")
    if url.user is not None or url.password is not None:
        raise ImageError("invalid_image_url", "the URL has a user's name or password in it, which are not used")
    return url


def _next(url: URL, location: str) -> URL:
    try:
        target = _checked(url.join(_url(location))) if location else None
    except (ValueError, ImageError):
        target = None
    if target is None:
        raise _failed("it is redirected to what is no URL that could be fetched")
    if url.scheme == "https" and target.scheme == "http":
        raise _failed("it is redirected from https: to http:")
    return target


def _failed(message: str) -> ImageError:
    return ImageError("failed_to_download_image", f"it cannot be fetched: {message}")


def _explained(error: aiohttp.ClientError) -> ImageError:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return _failed("its host is not known")
        case aiohttp.ClientConnectorCertificateError():
            return _failed("its host's certificate is not valid")
        case aiohttp.ClientConnectorError(os_error=ClosedError() as closed):
            return ImageError("invalid_image_url", str(closed))
        case aiohttp.InvalidURL():
            return ImageError("invalid_image_url", "the URL names no host that could be")
        case aiohttp.ClientConnectorError():
            return _failed("its host does not answer")
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return _failed("the server broke off")
    return _failed("what its host answers is no HTTP")
