from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import ImageHeader, broken, truncated

MAGIC = b"\xff\xd8\xff"

MAX_SEGMENTS = 2000

_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}
_FRAMES = {0xC0, 0xC1, 0xC2}
_OTHER_FRAMES = {*range(0xC3, 0xD0)} - {0xC4, 0xC8, 0xCC}
_PIXELS = 0xDA


def read_header(data: bytes) -> ImageHeader:
    header: ImageHeader | None = None
    position = 2
    for _ in range(MAX_SEGMENTS):
        filler, marker = unpack_from(">BB", data, position)
        if filler != 0xFF:
            raise broken("JPEG", "has invalid data in place of a segment")
        if marker == 0xFF or marker in _WITHOUT_LENGTH:
            position += 1 if marker == 0xFF else 2
            continue
        if marker in _FRAMES:
            header = _frame(data, position + 4)
        elif marker in _OTHER_FRAMES:
            raise MediaError("unsupported", "lossless or arithmetically coded JPEG: save it as a baseline JPEG")
        elif marker == _PIXELS:
            if header is None:
                raise broken("JPEG", "has no size")
            if data.rfind(b"\xff\xd9", position) < 0:
                raise truncated("JPEG")
            return header
        position += 2 + unpack_from(">H", data, position + 2)[0]
    raise broken("JPEG", f"has {MAX_SEGMENTS} segments and no pixels")


def _frame(data: bytes, position: int) -> ImageHeader:
    bits, height, width, components = unpack_from(">BHHB", data, position)
    if bits != 8:
        raise MediaError("unsupported", f"JPEG with {bits} bits per color: save it with 8")
    if components not in (1, 3, 4):
        raise MediaError("unsupported", f"JPEG with {components} color components: save it as RGB")
    return ImageHeader("JPEG", width, height)
