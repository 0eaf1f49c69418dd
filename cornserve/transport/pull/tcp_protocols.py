"""The two ends of a connection over which tensors are pulled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Final, cast

from cornserve.transport.errors import LostError
from cornserve.transport.memory.refcounted_blocks import CAPABILITY_BYTES
from cornserve.transport.pull.held_source import HeldSource
from cornserve.transport.pull.puller import FindSource

WRITE_BYTES: Final = 1 << 20
"""The producer passes this many bytes to the system at once. TLS copies them."""

MAX_SENDING: Final = 256
"""Connections over which a process sends tensors at once. Each may have `WRITE_BYTES` that wait for the consumer."""

_VALID, _FREED = b"\1", b"\0"


class SendingLimit:
    """Closes the connection that has waited longest for its consumer, if more than `MAX_SENDING` send at once."""

    def __init__(self) -> None:
        self._senders: dict[PullSender, None] = {}
        """The senders that send a tensor; the one whose last write is the oldest is the first."""

    def record_write(self, sender: PullSender) -> None:
        self._senders.pop(sender, None)
        self._senders[sender] = None
        if len(self._senders) > MAX_SENDING:
            oldest = next(iter(self._senders))
            del self._senders[oldest]
            oldest.abort()

    def remove(self, sender: PullSender) -> None:
        """Records that the sender has sent its tensor, or cannot send it."""
        self._senders.pop(sender, None)


class PullSender(asyncio.Protocol):
    """Sends the tensors that a consumer requests, one after the other.

    Args:
        limit: for the connections over which this process sends.
        on_closed: called when the connection is closed.
    """

    def __init__(self, find: FindSource, limit: SendingLimit, on_closed: Callable[[PullSender], None]) -> None:
        self._find = find
        self._limit = limit
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._request = b""
        self._response: asyncio.Task[None] | None = None
        self._is_writable = asyncio.Event()
        self.closed = asyncio.Event()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio's
        if transport.get_extra_info("sslcontext") is None:  # TLS copies the bytes when they are written
            self._transport.set_write_buffer_limits(high=0)  # `resume_writing` means that all bytes have been copied
        self._is_writable.set()

    def data_received(self, data: bytes) -> None:
        self._request += data
        if len(self._request) > CAPABILITY_BYTES or (self._response is not None and not self._response.done()):
            self.abort()  # a consumer waits for the response before it sends another request
        elif len(self._request) == CAPABILITY_BYTES:
            self._response = asyncio.create_task(self._respond(self._request), context=Context())
            self._request = b""

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None:
            self._response.cancel()
        self.closed.set()
        self._on_closed(self)

    async def _respond(self, capability: bytes) -> None:
        assert self._transport is not None
        found = self._find(capability)
        if found is None:
            self._transport.close()
            return
        source = HeldSource(found, self.abort)  # the transport keeps a reference to bytes that wait for the consumer
        try:
            for start in range(0, len(source.view), WRITE_BYTES):
                if start and not source.is_current():  # the consumer drops the bytes
                    self._transport.abort()
                    return
                self._limit.record_write(self)
                self._transport.write(source.view[start : start + WRITE_BYTES])
                await self._is_writable.wait()
        finally:
            source.release()
            self._limit.remove(self)
        self._transport.write(_VALID if source.is_current() else _FREED)


class PullReceiver(asyncio.BufferedProtocol):
    """Receives one tensor at a time, directly into the consumer's slab."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffers: list[memoryview] = []
        """The buffers that are not full yet: the rest of the tensor, and the byte after it."""
        self._surplus = memoryview(bytearray(1))
        self._received: asyncio.Future[None] | None = None
        self.is_closed = False

    async def receive(self, capability: bytes, into: memoryview) -> bool:
        """Fills `into`. Returns whether the tensor was still valid at the end; raises `LostError`."""
        status = memoryview(bytearray(1))
        self._buffers = [into, status]
        self._received = asyncio.get_running_loop().create_future()
        try:
            if self._transport is None or self.is_closed:
                self._fail()
            else:
                self._transport.write(capability)
            await self._received
        finally:
            self._buffers = []
        return status == _VALID

    def abort(self) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffers[0] if self._buffers else self._surplus

    def buffer_updated(self, nbytes: int) -> None:
        if not self._buffers:
            self.abort()  # the producer sends nothing without a request
            return
        self._buffers[0] = self._buffers[0][nbytes:]
        if not self._buffers[0]:
            del self._buffers[0]
        if not self._buffers and self._received is not None and not self._received.done():
            self._received.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._fail()

    def _fail(self) -> None:
        if self._received is not None and not self._received.done():
            reason = "its producer has closed the connection: the memory is freed, or the process has ended"
            self._received.set_exception(LostError(reason))
