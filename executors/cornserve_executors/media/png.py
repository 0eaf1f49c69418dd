"""Properties of a PNG file that Pillow does not report, or reports only after decoding all of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from struct import unpack_from

import PIL.Image

from cornserve.png import SIGNATURE, read_chunks

_PIXELS = b"IDAT"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""The number of channels by color type."""
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Adam7's passes: first column, first row, column step, row step (PNG specification, section 8.2)."""
_STEP_BYTES = 1 << 20
_ANIMATION = frozenset({b"acTL", b"fcTL", b"fdAT"})


def without_pixels(data: bytes) -> bytes:
    """Returns the file without its pixels, which is all that Pillow reads to open it.

    Drops animation chunks after the first pixels, which have no effect.
    """
    kept = []
    has_begun = False
    for kind, start, end in read_chunks(data):
        has_begun = has_begun or kind == _PIXELS
        if kind not in (_PIXELS, b"IEND") and not (has_begun and kind in _ANIMATION) and end <= len(data):
            kept.append(data[start:end])
    return b"".join([SIGNATURE, *kept, b"\0\0\0\0", _PIXELS, zlib.crc32(_PIXELS).to_bytes(4)])


def lacks_rows(data: bytes, decoded: PIL.Image.Image) -> bool:
    """Returns whether the file has fewer rows than its header specifies. Pillow leaves the missing rows black."""
    width, height, depth, color_type, interlaced = unpack_from(">IIBBxxB", data, 16)
    if not interlaced and decoded.crop((0, height - 1, width, height)).tobytes().strip(b"\0"):
        return False
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    bits = depth * _CHANNELS[color_type]
    expected = 0
    for left, top, across, down in passes:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            expected += rows * (1 + (columns * bits + 7) // 8)
    return not _has_unpacked_bytes(
        expected, (data[start + 8 : end - 4] for kind, start, end in read_chunks(data) if kind == _PIXELS)
    )


def _has_unpacked_bytes(nbytes: int, packed: Iterable[bytes]) -> bool:
    """Returns whether the data unpacks to at least `nbytes` bytes."""
    decompressor = zlib.decompressobj()
    unpacked = 0
    for chunk in packed:
        rest = chunk
        while rest:
            unpacked += len(decompressor.decompress(rest, _STEP_BYTES))
            if unpacked >= nbytes:
                return True
            rest = decompressor.unconsumed_tail
    return unpacked + len(decompressor.flush()) >= nbytes
