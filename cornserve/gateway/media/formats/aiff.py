from __future__ import annotations

from math import ceil
from struct import unpack_from

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import AudioHeader, broken

MAGIC = b"FORM"

MAX_CHUNKS = 1000

_UNCOMPRESSED, _COMPRESSED = b"AIFF", b"AIFC"
_PCM = b"NONE"
_ENCODINGS = frozenset(
    (
        *(_PCM, b"twos", b"sowt", b"raw ", b"in24", b"in32", b"42ni", b"23ni"),
        *(b"fl32", b"FL32", b"fl64", b"FL64", b"alaw", b"ALAW", b"ulaw", b"ULAW"),
    )
)
"""PCM, floating point, A-law and μ-law, whose sample frames have one sample of each channel."""
_IMA_ADPCM = b"ima4"
_IMA_BLOCK_BYTES, _IMA_BLOCK_SAMPLES = 34, 64
_EXPONENT_BIAS = 16383 + 63
"""The bias of an 80-bit float, and the bits after the first one of its mantissa."""


def read_header(data: bytes) -> AudioHeader:
    form = data[8:12]
    if form not in (_UNCOMPRESSED, _COMPRESSED):
        raise broken("FORM file", "is not an AIFF")
    header: AudioHeader | None = None
    position = 12
    for _ in range(MAX_CHUNKS):
        kind, size = unpack_from(">4sI", data, position)
        if kind == b"COMM":
            channels, samples, _, exponent, mantissa = unpack_from(">HIHHQ", data, position + 8)
            (encoding,) = unpack_from("4s", data, position + 26) if form == _COMPRESSED else (_PCM,)
            if encoding not in (*_ENCODINGS, _IMA_ADPCM):
                name = encoding.decode("latin-1")
                raise MediaError("unsupported", f"AIFF with the encoding {name!r}: save it as PCM")
            header = AudioHeader("AIFF", mantissa >> max(0, _EXPONENT_BIAS - exponent), channels, samples)
            if encoding != _IMA_ADPCM:
                return header
        elif kind == b"SSND" and header is not None:  # Some programs declare a wrong number for ADPCM.
            blocks = ceil(min(size - 8, len(data) - position - 16) / (_IMA_BLOCK_BYTES * max(1, header.channels)))
            return header._replace(samples=blocks * _IMA_BLOCK_SAMPLES)
        position += 8 + size + size % 2
    raise broken("AIFF", f"has {MAX_CHUNKS} chunks and no format")
