"""The memory that unfinished frames occupy, over all connections of a process.

A connection buffers a frame until the whole frame has arrived. When the buffered frames exceed the limit together, only
the frame with the fewest missing bytes is received further, and the others wait. Connections whose frames arrive too
slowly are closed then. So the frames occupy little more than the limit and one frame.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

MIB: Final = 1 << 20

UNCOUNTED_BYTES: Final = 64 << 10
"""Buffered bytes of a connection that are not counted: small frames never wait."""

FRAME_SECONDS: Final = 120.0
"""The time in which a counted frame must arrive."""

CONTENTION_SECONDS: Final = 2.0
"""The time over which the rate of a frame is measured while others wait."""

CONTENTION_BYTES_PER_SECOND: Final = 10 * MIB
"""The rate at which a frame must arrive while others wait."""

CHECK_SECONDS: Final = 0.25
"""The interval at which slow frames are closed while others wait."""

PREEMPTION_BYTES: Final = 64 * MIB
"""A frame with fewer missing bytes goes first until the limit is exceeded by this much."""


class FrameReceiver(Protocol):
    """A connection with an unfinished frame."""

    def pause_frame(self) -> None:
        """Stops reading."""

    def resume_frame(self) -> None:
        """Reads again."""

    def refuse(self, reason: str) -> None:
        """Aborts the connection, which calls `FrameMemory.free`."""


@dataclass(slots=True)
class _Frame:
    timeout: asyncio.TimerHandle
    measured_since: float
    """The start of the measurement of the rate, by the event loop's clock."""
    measured_bytes: int = 0
    """The buffered bytes at that time."""
    buffered_bytes: int = 0
    missing_bytes: int = 0
    is_waiting: bool = False

    def measure(self, now: float) -> bool:
        """Returns whether the frame arrives fast enough, or waits. Begins another measurement after
        `CONTENTION_SECONDS`."""
        seconds = now - self.measured_since
        if self.is_waiting or seconds <= CONTENTION_SECONDS:
            return True
        is_fast = self.buffered_bytes - self.measured_bytes >= seconds * CONTENTION_BYTES_PER_SECOND
        self.measured_since, self.measured_bytes = now, self.buffered_bytes
        return is_fast


class FrameMemory:
    """Args:
    limit: bytes of unfinished frames.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: dict[FrameReceiver, _Frame] = {}
        self._preferred: FrameReceiver | None = None
        """The only receiver that continues while the memory is full."""
        self._check: asyncio.TimerHandle | None = None
        self.buffered_bytes = 0

    def hold(self, receiver: FrameReceiver, buffered_bytes: int, frame_bytes: int) -> None:
        """Counts the unfinished frame of the receiver. Call it again when more of the frame has arrived.

        Args:
            buffered_bytes: the bytes that the receiver has buffered.
            frame_bytes: the size of the complete frame.
        """
        frame = self._frames.get(receiver)
        if frame is None:
            loop = asyncio.get_running_loop()
            reason = f"a frame of {frame_bytes} bytes did not arrive within {FRAME_SECONDS:g} s"
            frame = _Frame(loop.call_later(FRAME_SECONDS, receiver.refuse, reason), loop.time())
            self._frames[receiver] = frame
        self.buffered_bytes += buffered_bytes - frame.buffered_bytes
        frame.buffered_bytes, frame.missing_bytes = buffered_bytes, max(0, frame_bytes - buffered_bytes)
        if self._is_full:
            self._wait_unless_preferred(receiver, frame)

    def free(self, receiver: FrameReceiver) -> None:
        """Stops counting the receiver, whose frame is complete or lost. Does nothing if it is not counted."""
        frame = self._frames.pop(receiver, None)
        if frame is None:
            return
        frame.timeout.cancel()
        self.buffered_bytes -= frame.buffered_bytes
        if receiver is self._preferred:
            self._preferred = None
        if not self._is_full:
            for waiting in [receiver for receiver, frame in self._frames.items() if frame.is_waiting]:
                self._resume(waiting)
            self._preferred = None
        elif self._preferred is None and self._frames:
            self._prefer(min(self._frames, key=lambda receiver: self._frames[receiver].missing_bytes))

    @property
    def _is_full(self) -> bool:
        return self.buffered_bytes > self._limit

    def _wait_unless_preferred(self, receiver: FrameReceiver, frame: _Frame) -> None:
        preferred = None if self._preferred is None else self._frames[self._preferred]
        may_preempt = self.buffered_bytes <= self._limit + PREEMPTION_BYTES
        if preferred is None or (may_preempt and frame.missing_bytes < preferred.missing_bytes):
            self._prefer(receiver)
        elif receiver is not self._preferred and not frame.is_waiting:
            frame.is_waiting = True
            receiver.pause_frame()
            self._check_later()

    def _prefer(self, receiver: FrameReceiver) -> None:
        """Continues with this receiver. The one before waits as soon as more of its frame arrives."""
        self._preferred = receiver
        self._resume(receiver)
        self._check_later()

    def _resume(self, receiver: FrameReceiver) -> None:
        frame = self._frames[receiver]
        if frame.is_waiting:
            frame.is_waiting = False
            frame.measured_since, frame.measured_bytes = asyncio.get_running_loop().time(), frame.buffered_bytes
            receiver.resume_frame()

    def _check_later(self) -> None:
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._close_slow)

    def _close_slow(self) -> None:
        self._check = None
        if not self._is_full:
            return
        now = asyncio.get_running_loop().time()
        for receiver in [receiver for receiver, frame in self._frames.items() if not frame.measure(now)]:
            self._refuse_if_full(receiver)
        self._check_later()

    def _refuse_if_full(self, receiver: FrameReceiver) -> None:
        if self._is_full and len(self._frames) > 1:
            receiver.refuse("a frame arrived too slowly while frames of other connections waited")


FRAME_MEMORY: Final = FrameMemory(512 * MIB)
"""The memory of this process."""
