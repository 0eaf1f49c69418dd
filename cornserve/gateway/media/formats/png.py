from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import Header, animated, broken, truncated

MAGIC = b"\x89PNG\r\n\x1a\n"

END = b"IEND\xaeB`\x82"

MAX_CHUNKS = 1000
"""Before the pixels: profiles, texts."""


def read(data: bytes) -> Header:
    length, kind, width, height = unpack_from(">I4sII", data, 8)
    if kind != b"IHDR":
        raise broken("PNG", "does not begin with its size")
    position = 8
    for _ in range(MAX_CHUNKS):
        position += 12 + length
        length, kind = unpack_from(">I4s", data, position)
        if kind == b"acTL" and unpack_from(">I", data, position + 8) > (1,):
            raise animated("PNG")
        if kind == b"IDAT":
            if data.rfind(END, position) < 0:
                raise truncated("PNG")
            return Header("PNG", width, height)
    raise broken("PNG", f"has {MAX_CHUNKS} chunks and no pixels")
