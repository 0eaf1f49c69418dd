from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from
from typing import NamedTuple

from cornserve.gateway.media.formats.base import ImageHeader, VideoHeader, broken, too_many_frames, truncated

MAGICS = (b"GIF87a", b"GIF89a")

_EXTENSION, _IMAGE, _END = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9

_MIN_DELAY, _DEFAULT_DELAY = 2, 10
"""Hundredths of a second. Like browsers, decoders replace shorter delays with the default one."""


class _GifFrame(NamedTuple):
    right: int
    bottom: int
    delay: int
    """Hundredths of a second."""


def read_header(data: bytes) -> ImageHeader:
    """Reads the first frame."""
    frames = _frames(data, max_blocks(len(data)))
    first = next(frames, None)
    if first is None:
        raise broken("GIF", "has no image")
    for _ in frames:  # Raises an error for a truncated file.
        pass
    width, height = unpack_from("<HH", data, 6)
    # Decoders extend the canvas.
    return ImageHeader("GIF", max(width, first.right), max(height, first.bottom))


def read_animation(data: bytes, max_frames: int) -> VideoHeader:
    """Reads a video. Raises a `MediaError` if it has more than `max_frames` frames."""
    frames = delays = 0
    # A small change needs few bytes.
    for frame in _frames(data, max_blocks(len(data)) + 8 * max_frames):
        frames += 1
        delays += frame.delay
        if frames > max_frames:
            raise too_many_frames(max_frames)
    width, height = unpack_from("<HH", data, 6)
    return VideoHeader("GIF", width, height, frames, delays / 100)


def _frames(data: bytes, max_blocks: int) -> Iterator[_GifFrame]:
    blocks = _BlockReader(data, 13 + _color_table_bytes(data[10]), max_blocks)
    delay = 0
    while (kind := blocks.read_byte()) != _END:
        if kind == _EXTENSION:
            if data[blocks.position] == _GRAPHIC_CONTROL:
                (delay,) = unpack_from("<H", data, blocks.position + 3)
            blocks.skip(1)
        elif kind == _IMAGE:
            left, top, width, height, flags = unpack_from("<HHHHB", data, blocks.position)
            yield _GifFrame(left + width, top + height, delay if delay >= _MIN_DELAY else _DEFAULT_DELAY)
            delay = 0
            blocks.skip(9 + _color_table_bytes(flags) + 1)
        else:
            raise broken("GIF", "has invalid data in place of a block")


def max_blocks(size: int) -> int:
    """Returns how many blocks a file of `size` bytes may have. Encoders write blocks of 255 bytes."""
    return size // 64 + 1000


def _color_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


class _BlockReader:
    def __init__(self, data: bytes, position: int, max_blocks: int) -> None:
        self._data = data
        self._remaining = self._max = max_blocks
        self.position = position

    def read_byte(self) -> int:
        if self.position >= len(self._data):
            raise truncated("GIF")
        self.position += 1
        return self._data[self.position - 1]

    def skip(self, size: int) -> None:
        """Skips `size` bytes and the sub-blocks that follow them."""
        self.position += size
        while length := self._next_length():
            self.position += length

    def _next_length(self) -> int:
        self._remaining -= 1
        if self._remaining < 0:
            raise broken("GIF", f"has more than {self._max} blocks in {len(self._data)} bytes")
        return self.read_byte()
