"""The messages of a connection that have not been written yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cornserve.wire.frame_reader import LENGTH

WRITE_BYTES: Final = 1 << 16
"""A write takes messages until it has this many bytes, which is asyncio's high-water mark: the rest stays unsent while
the other end reads too slowly."""


class UnsentMessages:
    def __init__(self) -> None:
        self.messages: list[Sequence[bytes]] = []
        """The parts of each encoded message."""
        self.nbytes = 0

    def append(self, message: Sequence[bytes]) -> None:
        self.messages.append(message)
        self.nbytes += sum(map(len, message))

    def take_frames(self) -> list[bytes]:
        """Removes the messages for the next write, and returns the parts of their frames."""
        parts: list[bytes] = []
        total = count = 0
        for message in self.messages:
            size = sum(map(len, message))
            parts += (LENGTH.pack(size), *message)
            count += 1
            total += size
            if total >= WRITE_BYTES:
                break
        del self.messages[:count]
        self.nbytes -= total
        return parts
