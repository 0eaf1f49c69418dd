"""Splits the bytes that a connection receives into frames: a length in four bytes, and that many bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

LENGTH: Final = struct.Struct("!I")

MAX_FRAME_BYTES: Final = 512 << 20
"""The limit for the content of a frame, unless a protocol has another one."""

FRAMES_PER_ITERATION: Final = 256
"""Frames of one connection that are handled before other connections get theirs."""


class FrameTooLargeError(Exception):
    """The other end announced a frame that exceeds the limit of the protocol."""


class FrameReader:
    """Args:
    max_bytes: the limit for the content of a frame.
    on_frame: is called with the content of each frame, which is valid during the call. Returns whether further frames
        are wanted.
    """

    def __init__(self, max_bytes: int, on_frame: Callable[[memoryview], bool]) -> None:
        self._max_bytes = max_bytes
        self._on_frame = on_frame
        self._buffer = bytearray()
        self.buffered_bytes = 0
        self.has_backlog = False
        """Whether a complete frame is buffered: call `feed` again, with or without data."""
        self.unfinished_bytes = 0
        """The size of the frame whose end has not arrived, with its length. 0 without such a frame."""

    def feed(self, data: bytes) -> None:
        """Handles complete frames, at most `FRAMES_PER_ITERATION`, and buffers the rest.

        Raises:
            FrameTooLargeError: on the length of a frame that is too large.
        """
        if self._buffer:
            self._buffer += data
            del self._buffer[: self._parse(self._buffer)]
        else:
            parsed = self._parse(data)
            if parsed == len(data):
                return
            self._buffer += data[parsed:]
        self.buffered_bytes = len(self._buffer)

    def clear(self) -> None:
        """Drops what is buffered. Must not be called by `on_frame`."""
        self._buffer.clear()
        self.buffered_bytes = 0
        self.has_backlog = False

    def _parse(self, data: bytes | bytearray) -> int:
        """Handles frames; returns the position after the last one."""
        position = count = self.unfinished_bytes = 0
        self.has_backlog = False
        with memoryview(data) as view:  # a slice of a bytearray would be another copy
            while len(data) - position >= LENGTH.size:
                (size,) = LENGTH.unpack_from(data, position)
                if size > self._max_bytes:
                    raise FrameTooLargeError(f"a frame of {size} bytes, the limit is {self._max_bytes}")
                start = position + LENGTH.size
                if len(data) < start + size:
                    self.unfinished_bytes = LENGTH.size + size
                    break
                if count == FRAMES_PER_ITERATION:
                    self.has_backlog = True
                    break
                count += 1
                position = start + size
                content = view[start:position]
                is_wanted = self._on_frame(content)
                content.release()  # a kept exception may refer to it, and then the bytearray could not be resized
                if not is_wanted:
                    break
        return position
