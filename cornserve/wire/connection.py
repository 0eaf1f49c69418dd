"""A line between two processes: one TCP connection that carries all messages of one kind between the two.

A frame is a protobuf message behind its length in four bytes. Both ends begin with a greeting, so that neither takes a
stranger for the other. An empty frame says that its sender has nothing more to say: when both have said so, the
connection ends, and one that ends before is broken.

Messages that gather during a turn of the event loop, or while the other end reads too slowly, leave in one frame.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from google.protobuf.message import DecodeError, EncodeError, Message

from cornserve.wire import sockets
from cornserve.wire.frame import packed

Sent = TypeVar("Sent", bound=Message)
Received = TypeVar("Received", bound=Message)

MAX_FRAME_BYTES = 1 << 30

MAX_FRAME_MESSAGES = 64
"""So that the first are on their way while the next are packed."""

FULL_FRAME_BYTES = 8 << 20
"""Of messages, unless a single one has more: then that is a frame of its own."""

_LENGTH = struct.Struct("!I")


def address_of(endpoint: str) -> tuple[str, int]:
    """Where a process takes lines that is known by `endpoint`: at the port that follows. An executor serves gRPC at the
    endpoint itself."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port) + 1


@dataclass(frozen=True, slots=True)
class Codec(Generic[Sent, Received]):
    """What one of the two says, and hears."""

    greeting: bytes
    """The same for both."""
    receives: type[Received]
    """What the other side's frames are."""
    pack: Callable[[Sequence[Sent]], bytes] = packed
    """Makes a frame of messages that are sent."""


class MessageConnection(asyncio.Protocol, Generic[Sent, Received]):
    """One end of a line.

    Args:
        side: which of the two.
        take: is called with each frame of the other's, and with None when it has nothing more to say. It must not
            raise.
    """

    def __init__(self, side: Codec[Sent, Received], take: Callable[[Received | None], None]) -> None:
        self._side = side
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_full = False
        """What was written is not read."""
        self._ends = self._has_ended = self._other_has_ended = False
        self._reason: str | None = None
        """Why the connection is over."""
        self._greeted, self._room = asyncio.Event(), asyncio.Event()
        self.over = asyncio.Event()
        """Set when the connection is no more."""
        self.waiting: list[Sent] = []
        """What has not been written yet."""
        self.heard = 0
        """How often the other end has said anything."""

    async def connect(self, endpoint: str) -> None:
        """Raises `OSError` if nobody takes such lines there."""
        await self._loop.create_connection(lambda: self, *address_of(endpoint))
        await self.greeted()

    async def greeted(self) -> None:
        """Returns once it is known that the other end speaks this protocol. Raises `ConnectionError` if it does not."""
        await self._greeted.wait()
        if self._reason is not None:
            raise ConnectionError(self._reason)

    async def closed(self) -> str:
        """Returns when the connection is no more, and says why."""
        await self.over.wait()
        assert self._reason is not None
        return self._reason

    async def room(self, messages: int) -> None:
        """Returns when fewer than so many wait, or never will be sent."""
        while len(self.waiting) >= messages and self._reason is None:
            self._room.clear()
            await self._room.wait()

    def put(self, message: Sent) -> None:
        """Sends it as soon as possible."""
        if not self.waiting:
            self._loop.call_soon(self._flush)
        self.waiting.append(message)

    def end(self) -> None:
        """Says after what is waiting that there is nothing more."""
        self._ends = True
        self._loop.call_soon(self._flush)

    def abort(self, reason: str) -> None:
        """Ends the connection, also one that is yet to be made."""
        self._give_up(reason)
        if self._transport is None:
            self.over.set()
        else:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own, which does not derive from it
        if self._reason is not None:
            self._transport.abort()
            return
        sockets.notice_death(transport.get_extra_info("socket"))
        self._transport.write(self._side.greeting)

    def data_received(self, data: bytes) -> None:
        self.heard += 1
        if self._is_one_frame(data):  # nearly always, and then it needs no buffer
            self._receive(data[_LENGTH.size :])
            return
        self._buffer += data
        position = 0 if self._greeted.is_set() else self._after_greeting()
        while self._greeted.is_set() and self._reason is None:
            start = position + _LENGTH.size
            if len(self._buffer) < start:
                break
            (size,) = _LENGTH.unpack_from(self._buffer, position)
            if size > MAX_FRAME_BYTES:
                self.abort(f"the other end sent a frame of {size} bytes")
            if len(self._buffer) < start + size:
                break
            position = start + size
            with memoryview(self._buffer) as buffer:  # a slice of the buffer itself would be another copy
                frame = bytes(buffer[start:position])
            self._receive(frame)
        del self._buffer[:position]

    def _is_one_frame(self, data: bytes) -> bool:
        """Whether it is one whole frame, with nothing unread before it."""
        is_next = not self._buffer and self._greeted.is_set() and self._reason is None and len(data) >= _LENGTH.size
        return is_next and len(data) == _LENGTH.size + _LENGTH.unpack_from(data)[0]

    def _after_greeting(self) -> int:
        """Where the first frame begins."""
        if self._buffer.startswith(self._side.greeting):
            self._greeted.set()
            self._loop.call_soon(self._flush)
            return len(self._side.greeting)
        if not self._side.greeting.startswith(self._buffer):
            self.abort(f"the other end does not say {self._side.greeting.decode().strip()}")
        return 0

    def _receive(self, frame: bytes) -> None:
        if not frame:
            self._other_has_ended = True
            self._take(None)
            self._flush()
            return
        try:
            message = self._side.receives.FromString(frame)
        except DecodeError as error:
            self.abort(f"the other end sent what cannot be read: {error}")
        else:
            self._take(message)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up(f"the connection broke: {exc}" if exc else "the other end closed the connection")
        self.over.set()

    def _give_up(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            self._greeted.set()
            self._room.set()

    def _flush(self) -> None:
        if self._transport is None or self._reason is not None or not self._greeted.is_set():
            return
        while self.waiting and not self._is_full:
            fitting = self._fitting()
            messages, self.waiting = self.waiting[:fitting], self.waiting[fitting:]
            try:
                frame = self._side.pack(messages)
            except (EncodeError, ValueError) as error:  # more than protobuf can write
                self.abort(f"this end cannot write a frame: {error}")
                return
            self._transport.writelines((_LENGTH.pack(len(frame)), frame))
            self._room.set()
        if self._ends and not self.waiting and not self._has_ended:
            self._has_ended = True
            self._transport.write(_LENGTH.pack(0))
        if self._has_ended and self._other_has_ended:
            self._transport.close()

    def _fitting(self) -> int:
        """How many of the messages that wait go into the next frame: one at least, however long."""
        most = self.waiting[:MAX_FRAME_MESSAGES]
        if len(most) < 2:  # protobuf makes all of a message to say how long it is
            return len(most)
        size = 0
        for count, message in enumerate(most):
            size += message.ByteSize()
            if count and size > FULL_FRAME_BYTES:
                return count
        return len(most)
