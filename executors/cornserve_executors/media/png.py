"""What Pillow does not tell of a PNG file, or only once it has decoded all of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import unpack_from

import PIL.Image

_SIGNATURE_BYTES = 8
_PIXELS = b"IDAT"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type."""
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Of Adam7: first column and row, and steps (PNG specification, 8.2)."""
_STEP_BYTES = 1 << 20
_ANIMATION = frozenset({b"acTL", b"fcTL", b"fdAT"})


def without_pixels(data: bytes) -> bytes:
    """All that stands before the pixels and behind them, which Pillow reads of a file as soon as it opens it.

    But what makes an animation counts only before the pixels.
    """
    kept = []
    has_begun = False
    for kind, start, end in _chunks(data):
        has_begun = has_begun or kind == _PIXELS
        if kind not in (_PIXELS, b"IEND") and not (has_begun and kind in _ANIMATION) and end <= len(data):
            kept.append(data[start:end])
    return b"".join([data[:_SIGNATURE_BYTES], *kept, b"\0\0\0\0", _PIXELS, zlib.crc32(_PIXELS).to_bytes(4)])


def lacks_rows(data: bytes, decoded: PIL.Image.Image) -> bool:
    """Whether there are not as many rows as it says. Pillow leaves the others black."""
    width, height, depth, colours, interlaced = unpack_from(">IIBBxxB", data, 16)
    if not interlaced and decoded.crop((0, height - 1, width, height)).tobytes().strip(b"\0"):
        return False
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    bits = depth * _CHANNELS[colours]
    expected = 0
    for left, top, across, down in passes:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            expected += rows * (1 + (columns * bits + 7) // 8)
    return not _unpack_to(
        expected, (data[start + 8 : end - 4] for kind, start, end in _chunks(data) if kind == _PIXELS)
    )


def _unpack_to(nbytes: int, packed: Iterable[bytes]) -> bool:
    """Whether it is that much, or more."""
    unpacking = zlib.decompressobj()
    found = 0
    for piece in packed:
        rest = piece
        while rest:
            found += len(unpacking.decompress(rest, _STEP_BYTES))
            if found >= nbytes:
                return True
            rest = unpacking.unconsumed_tail
    return found + len(unpacking.flush()) >= nbytes


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Their kinds, and where they begin and end. The last one may end behind the end of the file."""
    position = _SIGNATURE_BYTES
    while position + 8 <= len(data):
        length, kind = unpack_from(">I4s", data, position)
        yield kind, position, position + 12 + length
        position += 12 + length
