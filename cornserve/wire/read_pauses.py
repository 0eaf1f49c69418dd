"""Stops reading from a connection as long as there is a reason."""

from __future__ import annotations

import asyncio
from enum import Enum, auto


class PauseReason(Enum):
    MEMORY = auto()
    """The unfinished frames of all connections occupy too much memory."""
    BACKLOG = auto()
    """Received frames have not been handled."""
    UNSENT = auto()
    """The other end does not read."""


class ReadPauses:
    def __init__(self) -> None:
        self._reasons: set[PauseReason] = set()

    def is_only(self, reason: PauseReason) -> bool:
        """Returns whether this is the only reason not to read."""
        return self._reasons == {reason}

    def update(self, reason: PauseReason, is_paused: bool, transport: asyncio.Transport | None) -> bool:
        """Adds or removes the reason. Pauses the transport, or resumes it, if it is open. Returns whether the reason
        is new or was removed."""
        if is_paused == (reason in self._reasons):
            return False
        was_reading = not self._reasons
        self._reasons ^= {reason}
        if transport is not None and not transport.is_closing():
            if was_reading:
                transport.pause_reading()
            elif not self._reasons:
                transport.resume_reading()
        return True
