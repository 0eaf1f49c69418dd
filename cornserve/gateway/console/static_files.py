"""The files of the console, compressed, in memory."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

INDEX: Final = "index.html"

_TYPES: Final = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "json": b"application/json",
    "png": b"image/png",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
    "webp": b"image/webp",
    "woff2": b"font/woff2",
}
"""Media types by the ends of names. Other files are not served."""

_COMPRESSED: Final = ("css", "html", "js", "json", "svg", "txt")

_UNCHANGED: Final = b"public, max-age=31536000, immutable"


class StaticFile(NamedTuple):
    """A file of the console with the headers of its response."""

    content: bytes
    compressed: bytes | None
    headers: Sequence[tuple[bytes, bytes]]
    etag: bytes


class StaticFiles:
    """Reads each file once, when it is requested first."""

    def __init__(self) -> None:
        root = files("cornserve.gateway.console") / "static"
        assets = (root / "assets").iterdir()
        self._paths = {INDEX: root / INDEX} | {f"assets/{file.name}": file for file in assets}
        self._read: dict[str, StaticFile] = {}

    async def get(self, name: str) -> StaticFile | None:
        """Returns a file by its name, such as `assets/index.css`."""
        if name not in self._paths or name.rpartition(".")[2] not in _TYPES:
            return None
        if name not in self._read:
            self._read[name] = await asyncio.to_thread(self._load, name)
        return self._read[name]

    def _load(self, name: str) -> StaticFile:
        content, suffix = self._paths[name].read_bytes(), name.rpartition(".")[2]
        cache = b"no-cache" if name == INDEX else _UNCHANGED
        compressed = gzip.compress(content, mtime=0) if suffix in _COMPRESSED else None
        etag = b'"%s"' % sha256(content).hexdigest()[:32].encode()
        headers = ((b"content-type", _TYPES[suffix]), (b"cache-control", cache), (b"vary", b"accept-encoding"))
        return StaticFile(content, compressed, (*headers, (b"etag", etag)), etag)
