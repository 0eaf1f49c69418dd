"""A connection that carries protobuf messages in both directions.

It consists of frames: the length of a message in four bytes, most significant first, and the message. An empty frame
means that its sender sends no further message, so the encoding of a message must not be empty: at least one field must
be set. The connection is closed once both ends have sent an empty frame; a connection that closes earlier is broken.

Between processes that do not trust everyone who can reach their ports, a handshake precedes the frames
(`cornserve.wire.handshake`). The two ends of a socket pair need none.

Messages that are sent within one event-loop iteration leave in one write, or in several if they are large
(`cornserve.wire.unsent_messages`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Generic, cast

from google.protobuf.message import DecodeError

from cornserve.observe import logs
from cornserve.observe.redaction import redacted_traceback
from cornserve.wire import handshake
from cornserve.wire.codec import MAX_UNSENT_BYTES, Codec, ProtocolError, Received, Sent
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.frame_memory import FRAME_MEMORY, UNCOUNTED_BYTES, FrameMemory
from cornserve.wire.frame_reader import LENGTH, FrameReader, FrameTooLargeError
from cornserve.wire.read_pauses import PauseReason, ReadPauses
from cornserve.wire.unsent_messages import UnsentMessages

log = logging.getLogger(__name__)

_END: Final = bytes(LENGTH.size)


class MessageConnection(asyncio.Protocol, Generic[Sent, Received]):
    """One end of a connection.

    Args:
        codec: the protocol.
        on_message: is called with each message, and with None when the other end sends no further message. If it
            raises, the connection is aborted.
        on_write: is called after each write of messages.
        memory: counts the unfinished frames of all connections.
    """

    def __init__(
        self,
        codec: Codec[Sent, Received],
        on_message: Callable[[Received | None], None],
        on_write: Callable[[], None] | None = None,
        memory: FrameMemory = FRAME_MEMORY,
    ) -> None:
        self._codec = codec
        self._on_message = on_message
        self._on_write = on_write
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._memory = memory
        self._reader = FrameReader(codec.max_received_bytes, self._on_frame)
        self._is_limited = False
        """Whether a backlog is postponed, or the memory of an unfinished frame is counted."""
        self._is_read_scheduled = False
        self._pauses = ReadPauses()
        self._is_paused = False
        """Whether the transport's write buffer is full."""
        self._unsent = UnsentMessages()
        self._is_finishing = self._has_finished = self._peer_has_finished = False
        self._close_reason: str | None = None
        self._capacity = asyncio.Event()
        self.closed = asyncio.Event()
        self.message_bytes = 0
        """The encoded size of the message that `on_message` receives."""
        self.read_count = 0
        """The number of reads that returned data of the other end."""

    async def connect(self, endpoint: str, credentials: ConnectionCredentials) -> None:
        """Connects to the process at `endpoint`, `HOST:PORT`.

        Raises:
            HandshakeError: the process does not speak the protocol, or does not have the instance's secret.
            OSError: no process accepts connections there.
        """
        await handshake.open_connection(endpoint, self._codec.preamble, self, credentials)

    @property
    def unsent(self) -> Sequence[Sequence[bytes]]:
        """The parts of encoded messages that have not been written yet."""
        return self._unsent.messages

    async def wait_closed(self) -> str:
        """Waits until the connection is closed; returns the reason."""
        await self.closed.wait()
        assert self._close_reason is not None
        return self._close_reason

    async def wait_for_capacity(self, messages: int) -> None:
        """Waits until fewer than `messages` messages and `MAX_UNSENT_BYTES` bytes are unsent, or the connection is
        closed."""
        while self._close_reason is None and self._has_unsent(messages):
            self._capacity.clear()
            await self._capacity.wait()

    def send(self, message: Sent, rest: Sequence[bytes] = ()) -> None:
        """Writes the message in the next event-loop iteration, or as soon as the transport accepts it.

        Args:
            rest: the encoding of further fields of the message, which is not copied.

        Raises:
            MessageSizeError: the encoded message is empty or has more than the codec's `max_sent_bytes`.
        """
        parts = self._codec.encode(message, rest)
        if not self.unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(parts)
        self._limit_unsent()

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
        else:
            self._flush()

    def data_received(self, data: bytes) -> None:
        self.read_count += 1
        self._read(data)

    def _read(self, data: bytes = b"") -> None:
        """Handles received frames, and counts the memory of an unfinished frame."""
        if self._close_reason is not None:
            return
        try:
            self._reader.feed(data)
        except FrameTooLargeError as error:
            self.refuse(f"the other end sent {error}")
        if self._reader.has_backlog or self._reader.buffered_bytes or self._is_limited:
            self._limit_reading()

    def _limit_reading(self) -> None:
        """Postpones a backlog to the next event-loop iteration, and counts the memory of a large unfinished frame."""
        if self._close_reason is not None:
            return
        has_backlog, buffered = self._reader.has_backlog, self._reader.buffered_bytes
        is_large = buffered > UNCOUNTED_BYTES and not has_backlog
        self._is_limited = has_backlog or is_large
        self._set_paused(PauseReason.BACKLOG, has_backlog)
        self._schedule_backlog()
        if is_large:
            self._memory.hold(self, buffered, self._reader.unfinished_bytes)
        else:
            self._memory.free(self)

    def _schedule_backlog(self) -> None:
        """Handles the backlog in the next event-loop iteration, unless there is another reason not to read."""
        if self._pauses.is_only(PauseReason.BACKLOG) and not self._is_read_scheduled:
            self._is_read_scheduled = True
            self._loop.call_soon(self._read_backlog)

    def _read_backlog(self) -> None:
        self._is_read_scheduled = False
        if self._pauses.is_only(PauseReason.BACKLOG):
            self._read()

    def _on_frame(self, content: memoryview) -> bool:
        """Handles one message. Returns whether further ones are wanted."""
        if self._is_limited:
            self._memory.free(self)  # The next frame is counted, and has to arrive, from its beginning.
        try:
            if self._peer_has_finished:
                self.refuse("the other end sent a message after its last one")
            elif content:
                self.message_bytes = len(content)
                self._on_message(self._codec.received_type.FromString(content))  # type: ignore[arg-type]  # FromString accepts any buffer.
            else:
                self._peer_has_finished = True
                self._on_message(None)
                self._flush()
        except DecodeError as error:
            self.refuse(f"the other end sent an invalid message: {error}")
        except ProtocolError as error:
            self.refuse(f"the other end broke the protocol: {error}")
        except Exception as error:
            log.error("cannot process a message", extra=logs.traceback_field(redacted_traceback(error)))
            self.abort(f"this end cannot process a message: {type(error).__name__}")
        return self._close_reason is None

    def pause_frame(self) -> None:
        """Stops reading, because unfinished frames occupy too much memory."""
        self._set_paused(PauseReason.MEMORY, True)

    def resume_frame(self) -> None:
        self._set_paused(PauseReason.MEMORY, False)

    def _set_paused(self, reason: PauseReason, is_paused: bool) -> None:
        if self._pauses.update(reason, is_paused, self._transport):
            self._schedule_backlog()

    def _limit_unsent(self) -> None:
        if self._codec.max_unsent is not None:
            self._set_paused(PauseReason.UNSENT, self._has_unsent(self._codec.max_unsent))

    def _has_unsent(self, messages: int) -> bool:
        """Returns whether this number of messages, or `MAX_UNSENT_BYTES` bytes, have not been written yet."""
        return len(self.unsent) >= messages or self._unsent.nbytes >= MAX_UNSENT_BYTES

    def refuse(self, reason: str) -> None:
        """Aborts the connection because the other end broke a rule. Logs the reason, which is not sent."""
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
        while self._reader.has_backlog and self._close_reason is None:
            self._read()
        self._set_closed(reason)
        self._reader.clear()
        self.closed.set()

    def _set_closed(self, reason: str) -> None:
        if self._close_reason is None:
            self._close_reason = reason
            self._capacity.set()
            self._memory.free(self)

    def _flush(self) -> None:
        if self._transport is None or self._close_reason is not None:
            return
        while self.unsent and not self._is_paused:
            self._transport.writelines(self._unsent.take_frames())
            self._limit_unsent()
            self._capacity.set()
            if self._on_write is not None:
                self._on_write()
        if self._is_finishing and not self.unsent and not self._has_finished:
            self._has_finished = True
            self._transport.write(_END)
        if self._has_finished and self._peer_has_finished:
            self._transport.close()
