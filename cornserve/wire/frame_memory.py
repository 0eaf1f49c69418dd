"""The memory that unfinished frames occupy, over all connections of a process.

A connection buffers a frame until the whole frame has arrived. When the buffered frames exceed the limit together, only
the oldest one is received further, and the others wait. The oldest frame therefore makes space for the next, or its
connection is closed because it does not arrive. So the frames occupy at most the limit and one more frame.
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
"""The time in which the oldest frame must arrive while others wait, in addition to that for its missing bytes."""

CONTENTION_BYTES_PER_SECOND: Final = 100 * MIB


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
    buffered_bytes: int
    missing_bytes: int
    timer: asyncio.TimerHandle


class FrameMemory:
    """Args:
    limit: bytes of unfinished frames.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: dict[FrameReceiver, _Frame] = {}
        """Oldest first."""
        self._waiting: set[FrameReceiver] = set()
        self._contention: asyncio.TimerHandle | None = None
        """Closes the oldest receiver, for which others wait."""
        self.buffered_bytes = 0

    def hold(self, receiver: FrameReceiver, buffered_bytes: int, frame_bytes: int) -> None:
        """Counts the unfinished frame of the receiver. Call it again when more of the frame has arrived.

        Args:
            buffered_bytes: the bytes that the receiver has buffered.
            frame_bytes: the size of the complete frame.
        """
        frame = self._frames.get(receiver)
        if frame is None:
            reason = f"a frame of {frame_bytes} bytes did not arrive within {FRAME_SECONDS:g} s"
            timer = asyncio.get_running_loop().call_later(FRAME_SECONDS, receiver.refuse, reason)
            frame = self._frames[receiver] = _Frame(0, 0, timer)
        self.buffered_bytes += buffered_bytes - frame.buffered_bytes
        frame.buffered_bytes, frame.missing_bytes = buffered_bytes, max(0, frame_bytes - buffered_bytes)
        if self._is_full and receiver is not self._oldest:
            receiver.pause_frame()
            self._waiting.add(receiver)
            self._limit_oldest()

    def free(self, receiver: FrameReceiver) -> None:
        """Stops counting the receiver, whose frame is complete or lost. Does nothing if it is not counted."""
        if receiver not in self._frames:
            return
        is_oldest = receiver is self._oldest
        frame = self._frames.pop(receiver)
        frame.timer.cancel()
        self.buffered_bytes -= frame.buffered_bytes
        self._waiting.discard(receiver)
        if is_oldest or not self._is_full or not self._waiting:
            self._resume()

    def _resume(self) -> None:
        """Resumes all receivers if there is space, otherwise the oldest."""
        if self._contention is not None:
            self._contention.cancel()
            self._contention = None
        resumed = self._waiting & {self._oldest} if self._is_full else self._waiting
        self._waiting = self._waiting - resumed
        for receiver in resumed:
            receiver.resume_frame()
        if self._waiting:
            self._limit_oldest()

    @property
    def _is_full(self) -> bool:
        return self.buffered_bytes > self._limit

    @property
    def _oldest(self) -> FrameReceiver | None:
        return next(iter(self._frames), None)

    def _limit_oldest(self) -> None:
        """Closes the oldest receiver after a while, because others wait for its frame."""
        oldest = self._oldest
        if self._contention is None and oldest is not None:
            seconds = CONTENTION_SECONDS + self._frames[oldest].missing_bytes / CONTENTION_BYTES_PER_SECOND
            reason = f"a frame did not arrive within {seconds:.1f} s while frames of other connections waited"
            self._contention = asyncio.get_running_loop().call_later(seconds, oldest.refuse, reason)


FRAME_MEMORY: Final = FrameMemory(512 * MIB)
"""The memory of this process."""
