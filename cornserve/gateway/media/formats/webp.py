from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import ImageHeader, broken, truncated

MAGIC = b"RIFF"


def read_header(data: bytes) -> ImageHeader:
    size, kind, chunk = unpack_from("<I4s4s", data, 4)
    if kind != b"WEBP":
        raise broken("RIFF file", "is not a WebP")
    if len(data) < 8 + size:
        raise truncated("WebP", f"ends in a chunk of {size} bytes")
    match chunk:
        case b"VP8 ":
            width, height = unpack_from("<HH", data, 26)
            return ImageHeader("WEBP", width & 0x3FFF, height & 0x3FFF)
        case b"VP8L":
            (bits,) = unpack_from("<I", data, 21)
            return ImageHeader("WEBP", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"VP8X":
            return ImageHeader(
                "WEBP", 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
            )
    raise broken("WebP", "does not begin with its size")
