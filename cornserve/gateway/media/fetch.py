"""Fetches media by http(s) URL.

Clients choose the URLs, and the gateway can reach hosts that they cannot: see `ssrf`. Servers may be slow or send too
much: time, size and redirects are limited, and compressed responses are rejected.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.inspection import MediaRules
from cornserve.gateway.media.resolver import HostResolver
from cornserve.gateway.media.ssrf import SafeSocketFactory, SsrfError
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist

MAX_REDIRECTS = 3
MAX_URL_CHARACTERS = 8192

_HOST = re.compile(r"[a-zA-Z0-9._:-]{1,253}")
_REDIRECTS = {301, 302, 303, 307, 308}
_HEADERS = {
    "Accept-Encoding": "identity",
    "User-Agent": "cornserve",
}


class MediaFetcher:
    """Downloads media, with a limited number of downloads at a time.

    Args:
        sources: by default, the public internet.
    """

    def __init__(
        self, limits: Limits, sources: MediaAllowlist | None = None, resolver: HostResolver | None = None
    ) -> None:
        self.limits = limits
        self._sources = sources or MediaAllowlist()
        self._resolver = resolver or HostResolver()
        self._downloads = asyncio.Semaphore(limits.fetches)

    async def fetch(self, url: str, rules: MediaRules, reserve_bytes: Callable[[int], None]) -> bytes:
        """Raises a `MediaError`.

        Args:
            reserve_bytes: called with the size of each received chunk. It may raise an error.
        """
        parsed = _parse(url)
        if self._sources.is_empty:
            raise MediaError("invalid_url", "this gateway does not fetch media: send a data: URL")
        async with self._downloads:
            try:
                async with asyncio.timeout(self.limits.fetch_seconds):
                    return await self._follow_redirects(parsed, rules, reserve_bytes)
            except TimeoutError:
                raise _failed(f"it did not complete in time ({self.limits.hint('fetch-seconds')})") from None

    async def _follow_redirects(self, url: URL, rules: MediaRules, reserve_bytes: Callable[[int], None]) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            async with self._get(url, rules.accept) as response:
                if response.status not in _REDIRECTS:
                    return await self._read(response, rules, reserve_bytes)
                url = _redirect_target(url, response.headers.get("Location", ""))
        raise _failed(f"more than {MAX_REDIRECTS} redirects")

    @asynccontextmanager
    async def _get(self, url: URL, accept: str) -> AsyncIterator[aiohttp.ClientResponse]:
        sockets = SafeSocketFactory(url.host or "", self._sources)
        connector = aiohttp.TCPConnector(
            resolver=self._resolver, socket_factory=sockets.open_socket, use_dns_cache=False, force_close=True
        )
        no_timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    timeout=no_timeout,
                    trust_env=False,
                ) as session,
                session.get(url, headers={"Accept": accept, **_HEADERS}, allow_redirects=False) as response,
            ):
                yield response
        except aiohttp.ClientError as error:
            raise _to_media_error(error) from error

    async def _read(
        self, response: aiohttp.ClientResponse, rules: MediaRules, reserve_bytes: Callable[[int], None]
    ) -> bytes:
        if response.status != 200:
            raise _failed(f"the server returned status {response.status}")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _failed("the server compressed the response against the request")
        max_bytes = rules.max_bytes(self.limits)
        if (response.content_length or 0) > max_bytes:
            raise self._too_large(rules)
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            reserve_bytes(len(chunk))
            size += len(chunk)
            if size > max_bytes:
                raise self._too_large(rules)
            chunks.append(chunk)
        return b"".join(chunks)

    def _too_large(self, rules: MediaRules) -> MediaError:
        return MediaError("too_large", f"the file has too many bytes ({self.limits.hint(rules.bytes_limit)})")


def _parse(text: str) -> URL:
    if len(text) > MAX_URL_CHARACTERS:
        raise MediaError(
            "invalid_url",
            f"the URL has {len(text)} characters, more than the limit of {MAX_URL_CHARACTERS}: send a data: URL",
        )
    try:
        return _checked(_url(text))
    except ValueError:
        raise MediaError("invalid_url", "not a valid URL: send https://…, http://… or data:TYPE;base64,…") from None


def _url(text: str) -> URL:
    """Keeps the spelling of the URL if it can be sent, because the URL may be signed."""
    return URL(text, encoded=text.isascii() and text.isprintable() and " " not in text)


def _checked(url: URL) -> URL:
    if url.scheme not in ("http", "https"):
        problem = f"unsupported URL scheme {url.scheme[:20]!r}" if url.scheme else "the URL has no scheme"
        raise MediaError("invalid_url", f"{problem}: use https:, http: or data:")
    if not _HOST.fullmatch(url.raw_host or "") or not url.host:  # url.host raises if it cannot decode the name.
        raise MediaError("invalid_url", "the URL has no valid host")
    if url.user is not None or url.password is not None:
        raise MediaError("invalid_url", "the URL contains a user name or a password: remove them")
    return url


def _redirect_target(url: URL, location: str) -> URL:
    try:
        target = _checked(url.join(_url(location))) if location else None
    except (ValueError, MediaError):
        target = None
    if target is None:
        raise _failed("the redirect has no valid http(s) URL")
    if url.scheme == "https" and target.scheme == "http":
        raise _failed("the redirect leads from https: to http:")
    return target


def _failed(message: str) -> MediaError:
    return MediaError("failed_to_download", f"the download failed: {message}")


def _to_media_error(error: aiohttp.ClientError) -> MediaError:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return _failed("unknown host")
        case aiohttp.ClientConnectorCertificateError():
            return _failed("the server's certificate is not valid")
        case aiohttp.ClientConnectorError(os_error=SsrfError() as not_allowed):
            return MediaError("invalid_url", str(not_allowed))
        case aiohttp.InvalidURL():
            return MediaError("invalid_url", "the URL has no valid host")
        case aiohttp.ClientConnectorError():
            return _failed("the server does not respond")
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return _failed("the server closed the connection")
    return _failed("the response is not valid HTTP")
