from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import Header, animated, broken, truncated

_EXTENSION, _IMAGE, _END = 0x21, 0x2C, 0x3B


def read(data: bytes) -> Header:
    width, height, flags = unpack_from("<HHB", data, 6)
    blocks = _Blocks(data, 13 + _colours(flags))
    frame: tuple[int, int] | None = None
    while (kind := blocks.next()) != _END:
        if kind == _EXTENSION:
            blocks.skip(1)
        elif kind == _IMAGE:
            if frame is not None:
                raise animated("GIF")
            left, top, frame_width, frame_height, flags = unpack_from("<HHHHB", data, blocks.position)
            frame = left + frame_width, top + frame_height
            blocks.skip(9 + _colours(flags) + 1)
        else:
            raise broken("GIF", "has something else where a block should begin")
    if frame is None:
        raise broken("GIF", "has no picture")
    return Header("GIF", max(width, frame[0]), max(height, frame[1]))  # decoders grow with the picture


def max_blocks(size: int) -> int:
    """Of a file of so many bytes. Encoders make blocks of 255 bytes."""
    return size // 64 + 1000


def _colours(flags: int) -> int:
    """The bytes of a colour table."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


class _Blocks:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._left = self._most = max_blocks(len(data))
        self.position = position

    def next(self) -> int:
        if self.position >= len(self._data):
            raise truncated("GIF")
        self.position += 1
        return self._data[self.position - 1]

    def skip(self, size: int) -> None:
        """So many bytes, and the sub-blocks that follow."""
        self.position += size
        while length := self._next_of_few():
            self.position += length

    def _next_of_few(self) -> int:
        self._left -= 1
        if self._left < 0:
            raise broken("GIF", f"has more than {self._most} blocks in {len(self._data)} bytes")
        return self.next()
