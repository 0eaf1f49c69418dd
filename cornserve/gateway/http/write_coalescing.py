"""Combines the writes of one event-loop iteration into one system call.

The head and the body of a response, or the events of a stream that arrive together, would each take a system call,
which costs more than all work before it, and a packet that wakes the client.
"""

from __future__ import annotations

import asyncio
from typing import Any

LARGE_WRITE_BYTES = 64 * 1024
"""Writes above this size are forwarded immediately."""


class CoalescingTransport(asyncio.Transport):
    """Wraps a transport and combines writes to it. Has only those methods of a transport that uvicorn uses."""

    __slots__ = ("_loop", "_pending", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        if len(data) > LARGE_WRITE_BYTES:  # Pauses the writer immediately if the client does not read.
            self._flush()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _flush(self) -> None:
        if self._pending and not self._transport.is_closing():
            pending, self._pending = self._pending, []
            self._transport.writelines(pending)
