"""What is written to a client in one turn of the event loop leaves at once.

The head of an answer and its body, or the events of a stream that came together, would each be a call of the system,
which costs more than all that leads to it, and a packet that wakes the client.
"""

from __future__ import annotations

import asyncio
from typing import Any

LARGE = 64 * 1024
"""Bytes, of which less is written without a second thought."""


class Cork:
    """Stands for a transport of which it gathers the writes."""

    __slots__ = ("_loop", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
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

    def _flush(self) -> None:
        if self._written and not self._transport.is_closing():
            written, self._written = self._written, []
            self._transport.writelines(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
