"""What is written to a client in one turn of the event loop leaves at once.

The head of an answer and its body, or the events of a stream that came together, would each be a call of the system,
which costs more than all that leads to it, and a packet that wakes the client.
"""

from __future__ import annotations

import asyncio
from typing import Any

LARGE = 64 * 1024
"""Bytes, of which less is written without a second thought."""


class Cork(asyncio.Transport):
    """Stands for a transport of which it gathers the writes. It has what uvicorn asks of one, and no more."""

    __slots__ = ("_loop", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)
        if len(data) > LARGE:  # whoever writes more than that is to hear at once whether it is read
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
        if self._written and not self._transport.is_closing():
            written, self._written = self._written, []
            self._transport.writelines(written)
