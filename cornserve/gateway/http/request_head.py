"""Checks and rewrites the heads of requests."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.head_limits import MAX_HEADERS

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, and values."""

_HOST = re.compile(rb"[!$-.0-;=A-\[\]_a-z~]*")


def check_head(method: bytes, version: str, headers: Headers) -> None:
    """Raises an `ApiError` if a request is not acceptable."""
    if version not in ("1.0", "1.1"):
        raise ApiError(400, f"the request has HTTP version {version}: use HTTP/1.1")
    if len(headers) > MAX_HEADERS:
        raise ApiError(431, f"the request has {len(headers)} headers: at most {MAX_HEADERS} are allowed")
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if hosts != 1 and (hosts or version == "1.1"):
        raise ApiError(400, f"the request has {hosts} Host headers: HTTP/1.1 requires one")
    if hosts and not _HOST.fullmatch(headers[names.index(b"host")][1]):
        raise ApiError(400, "the Host header is not a host name with an optional port")
    if b"transfer-encoding" in names:
        encodings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
        if encodings != [b"chunked"]:
            raise ApiError(400, "the request has a Transfer-Encoding other than chunked")
    if method == b"CONNECT":
        raise ApiError(400, "the gateway does not support CONNECT: it is not a proxy")


def without_upgrade(method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns the head of a request without its `Upgrade` headers."""
    lines = [b"%b: %b\r\n" % (name, value) for name, value in headers if name != b"upgrade"]
    return b"".join([b"%b %b HTTP/%b\r\n" % (method, url, version.encode()), *lines, b"\r\n"])


def request_target(data: bytes) -> bytes:
    """Returns the target of the request that begins with this data. Empty if its first line is not complete."""
    words = data.partition(b"\r\n")[0].split(b" ")
    return words[1] if len(words) == 3 else b""
