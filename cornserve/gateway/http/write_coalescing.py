"""Combines the writes of one event-loop iteration into one system call.

The head and the body of a response, or the events of a stream that arrive together, would each take a system call,
which costs more than all work before it, and a packet that wakes the client.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cornserve.gateway.http.lingering import LingeringClose

LARGE_WRITE_BYTES = 64 * 1024
"""Writes above this size are forwarded immediately."""


class CoalescingTransport(asyncio.Transport):
    """Wraps a transport, combines writes to it, and closes it so that the client receives all of them.

    Has only those methods of a transport that connections use.
    """

    __slots__ = ("_lingering", "_loop", "_pending", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._lingering: LingeringClose | None = None

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)
        if len(data) > LARGE_WRITE_BYTES:  # Pauses the writer immediately if the client does not read.
            self.flush()

    def is_closing(self) -> bool:
        return self._lingering is not None or self._transport.is_closing()

    def close(self) -> None:
        """Sends what was written. Data that the client sends from now on is dropped."""
        if not self.is_closing():
            self.flush()
            self._lingering = LingeringClose(self._transport, self._loop)

    def on_lost(self) -> None:
        """Call this when the connection is lost."""
        if self._lingering is not None:
            self._lingering.cancel()

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

    def flush(self) -> None:
        """Sends what was written, unless the transport is closing."""
        if self._pending and not self.is_closing():
            pending, self._pending = self._pending, []
            self._transport.writelines(pending)
