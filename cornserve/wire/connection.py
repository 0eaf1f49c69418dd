"""One TCP connection that carries protobuf messages in both directions.

Both ends begin with the same preamble, which identifies the protocol and its version. Then come frames: the length of a
message in four bytes, most significant first, and the message. An empty frame means that its sender sends no further
message, so the encoding of a message must not be empty: at least one field must be set. The connection is closed once
both ends have sent an empty frame; a connection that closes earlier is broken.

Messages that are sent within one event-loop iteration leave in one write, or in several if they exceed `WRITE_BYTES`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from google.protobuf.message import DecodeError, EncodeError, Message

from cornserve.observe.redaction import redacted_traceback
from cornserve.wire import sockets

log = logging.getLogger(__name__)

Sent = TypeVar("Sent", bound=Message)
Received = TypeVar("Received", bound=Message)

MAX_FRAME_BYTES: Final = 1 << 30

WRITE_BYTES: Final = 1 << 16
"""A write takes messages until it has this many bytes, which is asyncio's high-water mark: the rest stays in `unsent`
while the other end reads too slowly."""

_LENGTH: Final = struct.Struct("!I")
_END: Final = bytes(_LENGTH.size)


def connection_address(endpoint: str) -> tuple[str, int]:
    """Returns host and port of the connections to the process at `endpoint`: the port after the endpoint's own, which
    serves gRPC."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port) + 1


@dataclass(frozen=True, slots=True)
class Codec(Generic[Sent, Received]):
    """The protocol from the perspective of one end."""

    preamble: bytes
    """The bytes that both ends send first."""
    received_type: type[Received]
    """The type of the messages that this end receives."""


class MessageSizeError(Exception):
    """A message cannot be sent, because it is empty or too large for a frame."""


class ProtocolError(Exception):
    """The other end sent a message that the protocol does not allow in this place. Raise it in `on_message`: it aborts
    the connection and nothing else."""


class MessageConnection(asyncio.Protocol, Generic[Sent, Received]):
    """One end of a connection.

    Args:
        codec: the protocol.
        on_message: is called with each message, and with None when the other end sends no further message. If it
            raises, the connection is aborted.
        on_write: is called after each write of messages.
    """

    def __init__(
        self,
        codec: Codec[Sent, Received],
        on_message: Callable[[Received | None], None],
        on_write: Callable[[], None] | None = None,
    ) -> None:
        self._codec = codec
        self._on_message = on_message
        self._on_write = on_write
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unparsed = bytearray()
        self._is_paused = False
        """Whether the transport's write buffer is full."""
        self._is_finishing = self._has_finished = self._peer_has_finished = False
        self._close_reason: str | None = None
        self._connected, self._capacity = asyncio.Event(), asyncio.Event()
        self.closed = asyncio.Event()
        self.unsent: list[Sequence[bytes]] = []
        """The parts of encoded messages that have not been written yet."""
        self.read_count = 0
        """The number of reads that returned data of the other end."""

    async def connect(self, endpoint: str) -> None:
        """Connects to the process at `endpoint`. Raises `OSError` if it does not accept such connections."""
        await self._loop.create_connection(lambda: self, *connection_address(endpoint))
        await self.wait_connected()

    async def wait_connected(self) -> None:
        """Waits for the other end's preamble. Raises `ConnectionError` if the other end does not send it."""
        await self._connected.wait()
        if self._close_reason is not None:
            raise ConnectionError(self._close_reason)

    async def wait_closed(self) -> str:
        """Waits until the connection is closed; returns the reason."""
        await self.closed.wait()
        assert self._close_reason is not None
        return self._close_reason

    async def wait_for_capacity(self, messages: int) -> None:
        """Waits until fewer than `messages` are unsent, or the connection is closed."""
        while len(self.unsent) >= messages and self._close_reason is None:
            self._capacity.clear()
            await self._capacity.wait()

    def send(self, message: Sent, rest: Sequence[bytes] = ()) -> None:
        """Writes the message in the next event-loop iteration, or as soon as the transport accepts it.

        Args:
            rest: the encoding of further fields of the message, which is not copied.

        Raises:
            MessageSizeError: the encoded message is empty or has more than `MAX_FRAME_BYTES`.
        """
        try:
            content = message.SerializeToString()
        except (EncodeError, ValueError) as error:  # the message is larger than protobuf can encode
            raise MessageSizeError(f"the message cannot be encoded: {error}") from error
        parts = (content, *rest)
        size = sum(map(len, parts))
        if not 0 < size <= MAX_FRAME_BYTES:
            raise MessageSizeError(f"the message has {size} bytes: it must have 1 to {MAX_FRAME_BYTES}")
        if not self.unsent:
            self._loop.call_soon(self._flush)
        self.unsent.append(parts)

    def finish(self) -> None:
        """Sends the unsent messages, and then the empty frame."""
        self._is_finishing = True
        self._loop.call_soon(self._flush)

    def abort(self, reason: str) -> None:
        """Closes the connection immediately, even before it is established."""
        self._set_closed(reason)
        if self._transport is None:
            self.closed.set()
        else:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio's
        if self._close_reason is not None:
            self._transport.abort()
            return
        sockets.enable_keepalive(transport.get_extra_info("socket"))
        self._transport.write(self._codec.preamble)

    def data_received(self, data: bytes) -> None:
        self.read_count += 1
        if self._unparsed:
            self._unparsed += data
            del self._unparsed[: self._parse(self._unparsed)]
        else:
            parsed = self._parse(data)
            if parsed < len(data):
                self._unparsed += data[parsed:]

    def _parse(self, data: bytes | bytearray) -> int:
        """Handles all complete frames; returns the position after the last one."""
        position = 0
        if not self._connected.is_set():
            position = self._parse_preamble(data)
            if not position:
                return 0
        with memoryview(data) as view:  # a slice of a bytearray would be another copy
            while self._close_reason is None and len(data) - position >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(data, position)
                if size > MAX_FRAME_BYTES:
                    self._refuse(f"the other end sent a frame of {size} bytes")
                start = position + _LENGTH.size
                if len(data) < start + size:
                    break
                position = start + size
                content = view[start:position]
                self._receive(content)
                content.release()  # a kept exception may refer to it, and then the bytearray could not be resized
        return position

    def _parse_preamble(self, data: bytes | bytearray) -> int:
        """Returns the length of the preamble if it is complete, otherwise 0."""
        preamble = self._codec.preamble
        if data.startswith(preamble):
            self._connected.set()
            self._loop.call_soon(self._flush)
            return len(preamble)
        if not preamble.startswith(data):
            self.abort(f"the other end does not speak {preamble.decode().strip()}")
        return 0

    def _receive(self, content: memoryview) -> None:
        try:
            if content:
                self._on_message(self._codec.received_type.FromString(content))  # type: ignore[arg-type]  # FromString accepts any buffer.
            else:
                self._peer_has_finished = True
                self._on_message(None)
                self._flush()
        except DecodeError as error:
            self._refuse(f"the other end sent an invalid message: {error}")
        except ProtocolError as error:
            self._refuse(f"the other end broke the protocol: {error}")
        except Exception as error:
            log.error("cannot process a message:\n%s", redacted_traceback(error))
            self.abort(f"this end cannot process a message: {type(error).__name__}")

    def _refuse(self, reason: str) -> None:
        """Aborts the connection because of a message of the other end. Logs the reason, which is not sent."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        log.warning("closed the connection of %s: %s", peer, reason)
        self.abort(reason)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"the connection broke: {exc}" if exc else "the other end closed the connection"
        if not self._connected.is_set():
            reason += f" before it sent the preamble {self._codec.preamble.decode().strip()}"
        self._set_closed(reason)
        self.closed.set()

    def _set_closed(self, reason: str) -> None:
        if self._close_reason is None:
            self._close_reason = reason
            self._connected.set()
            self._capacity.set()

    def _flush(self) -> None:
        if self._transport is None or self._close_reason is not None or not self._connected.is_set():
            return
        while self.unsent and not self._is_paused:
            frames, count = self._next_frames()
            self._transport.writelines(frames)
            del self.unsent[:count]
            self._capacity.set()
            if self._on_write is not None:
                self._on_write()
        if self._is_finishing and not self.unsent and not self._has_finished:
            self._has_finished = True
            self._transport.write(_END)
        if self._has_finished and self._peer_has_finished:
            self._transport.close()

    def _next_frames(self) -> tuple[list[bytes], int]:
        """Returns the parts of the frames for the next write, and how many messages they contain."""
        parts: list[bytes] = []
        total = count = 0
        for message in self.unsent:
            size = sum(map(len, message))
            parts += (_LENGTH.pack(size), *message)
            count += 1
            total += size
            if total >= WRITE_BYTES:
                break
        return parts, count
