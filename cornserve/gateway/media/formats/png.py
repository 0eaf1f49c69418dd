from __future__ import annotations

from itertools import islice
from struct import unpack_from

from cornserve.gateway.media.formats.base import ImageHeader, broken, truncated, truncated_header
from cornserve.png import read_chunks

END = b"IEND\xaeB`\x82"

MAX_CHUNKS = 1000
"""The maximum number of chunks before the pixels, such as profiles and texts."""


def read_header(data: bytes) -> ImageHeader:
    width, height = unpack_from(">II", data, 16)
    count = 0
    for count, chunk in enumerate(islice(read_chunks(data), MAX_CHUNKS + 1)):
        if count == 0 and chunk.type != b"IHDR":
            raise broken("PNG", "does not begin with its size")
        if chunk.type == b"IDAT":
            if data.rfind(END, chunk.start) < 0:
                raise truncated("PNG")
            return ImageHeader("PNG", width, height)
    raise broken("PNG", f"has {MAX_CHUNKS} chunks and no pixels") if count == MAX_CHUNKS else truncated_header()
