from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import ImageHeader, animated, broken, truncated

_EXTENSION, _IMAGE, _END = 0x21, 0x2C, 0x3B


def read_header(data: bytes) -> ImageHeader:
    width, height, flags = unpack_from("<HHB", data, 6)
    blocks = _BlockReader(data, 13 + _color_table_bytes(flags))
    frame: tuple[int, int] | None = None
    while (kind := blocks.read_byte()) != _END:
        if kind == _EXTENSION:
            blocks.skip(1)
        elif kind == _IMAGE:
            if frame is not None:
                raise animated("GIF")
            left, top, frame_width, frame_height, flags = unpack_from("<HHHHB", data, blocks.position)
            frame = left + frame_width, top + frame_height
            blocks.skip(9 + _color_table_bytes(flags) + 1)
        else:
            raise broken("GIF", "has invalid data in place of a block")
    if frame is None:
        raise broken("GIF", "has no image")
    return ImageHeader("GIF", max(width, frame[0]), max(height, frame[1]))  # decoders extend the canvas to the frame


def max_blocks(size: int) -> int:
    """Returns how many blocks a file of `size` bytes may have. Encoders write blocks of 255 bytes."""
    return size // 64 + 1000


def _color_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


class _BlockReader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._remaining = self._max = max_blocks(len(data))
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
