from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import AudioHeader, broken

MAGIC = b"FORM"

MAX_CHUNKS = 1000

_KINDS = (b"AIFF", b"AIFC")
_EXPONENT_BIAS = 16383 + 63
"""The bias of an 80-bit float, and the bits after the first one of its mantissa."""


def read_header(data: bytes) -> AudioHeader:
    if data[8:12] not in _KINDS:
        raise broken("FORM file", "is not an AIFF")
    position = 12
    for _ in range(MAX_CHUNKS):
        kind, size = unpack_from(">4sI", data, position)
        if kind == b"COMM":
            channels, samples, _, exponent, mantissa = unpack_from(">HIHHQ", data, position + 8)
            return AudioHeader("AIFF", mantissa >> max(0, _EXPONENT_BIAS - exponent), channels, samples)
        position += 8 + size + size % 2
    raise broken("AIFF", f"has {MAX_CHUNKS} chunks and no format")
