"""Limits the parts of a request that are not its content: the head, and the framing of a chunked body.

The parser accepts headers, chunk extensions and trailers of any length.
"""

from __future__ import annotations

MAX_HEAD_BYTES = 64 * 1024
"""The maximum size of a request line and its headers. Proxies and other servers allow less."""

MAX_HEADERS = 100

MAX_FRAMING_BYTES = 16 * 1024
"""The maximum size of all chunk extensions and trailers of a request."""

CHUNK_FRAMING_BYTES = 32
"""The part of each chunk that does not count as an extension: its size and two line ends."""


class RequestSize:
    """Counts the bytes of the request that a connection receives."""

    __slots__ = ("_end", "_framing", "_head", "_latest", "in_head")

    def __init__(self) -> None:
        self._end = b""
        """The last 3 bytes received: the blank line that ends a head may be split."""
        self.begin_head()

    def begin_head(self) -> None:
        self.in_head = True
        """Whether a head is being received, or nothing."""
        self._head = 0
        self._latest = 0
        """The size of the data received last, or 0 if it began with a previous request."""

    def begin_body(self) -> None:
        self.in_head = False
        self._framing = max(0, self._latest - MAX_HEAD_BYTES)  # The data that ended the head may contain framing.

    def add_received(self, data: bytes) -> bool:
        """Counts received bytes. Returns whether they make an incomplete head too long.

        `data` may contain a body after the head, which does not count.
        """
        self._latest = len(data)
        begun, self._end = self._end, (self._end + data[-3:])[-3:]
        if not self.in_head:
            self._framing += len(data)
            return False
        before = self._head
        self._head += len(data)
        if self._head <= MAX_HEAD_BYTES:
            return False
        end = (begun + data).find(b"\r\n\r\n")
        return end < 0 or before + end > MAX_HEAD_BYTES

    def add_content(self, size: int) -> None:
        """Counts content, which is not framing."""
        self._framing -= size

    @property
    def is_framing_too_long(self) -> bool:
        return not self.in_head and self._framing > MAX_FRAMING_BYTES
