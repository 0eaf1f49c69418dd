"""Closes a connection without losing its last response.

Closing a socket that has unread data resets the connection, and the reset may discard a response that the client has
not read yet. A server therefore ends its own side first, drops what the client still sends, and then closes.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import termios
from contextlib import suppress

LINGER_SECONDS = 2.0
"""The time that a client has to close its side, or to read more of its response."""


def has_unread_data(transport: asyncio.BaseTransport) -> bool:
    """Returns whether the operating system has received data that the transport has not read yet."""
    size = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, size)
    return size[0] > 0


class LingeringClose:
    """Ends the server's side of a connection, and closes it when the client does, or stops reading."""

    __slots__ = ("_loop", "_timer", "_transport", "_unsent")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unsent = transport.get_write_buffer_size()
        with suppress(OSError):  # the client has reset the connection
            transport.write_eof()
        transport.resume_reading()
        self._timer = loop.call_later(LINGER_SECONDS, self._on_timeout)

    def cancel(self) -> None:
        """Call this when the connection is lost."""
        self._timer.cancel()

    def _on_timeout(self) -> None:
        before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if 0 < self._unsent < before:
            self._timer = self._loop.call_later(LINGER_SECONDS, self._on_timeout)
        else:
            self._transport.abort()
