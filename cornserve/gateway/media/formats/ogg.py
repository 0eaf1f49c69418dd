from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import AudioHeader, broken, truncated

MAGIC = b"OggS"

MAX_LAST_PAGES = 100
"""The number of pages at the end of a file that are searched for one with a position."""

_PAGE_START = MAGIC + b"\0"
"""The magic and the version of the format."""
_PAGE_HEADER_BYTES = 27
_END_OF_STREAM = 4
"""The flag of a stream's last page (RFC 3533, section 6)."""
_NO_POSITION = -1
_OPUS_SAMPLE_RATE = 48_000
"""Positions in Opus count samples of this rate (RFC 7845, section 4)."""


def read_header(data: bytes) -> AudioHeader:
    serial, segments = unpack_from("<I8xB", data, 14)
    if not _is_whole_page(data, 0):
        raise truncated("Ogg file", "ends in a page")
    start = _PAGE_HEADER_BYTES + segments
    if data[start : start + 8] == b"OpusHead":
        channels, skipped = unpack_from("<BH", data, start + 9)
        return AudioHeader("OGG", _OPUS_SAMPLE_RATE, channels, _end(data, serial) - skipped)
    if data[start : start + 7] == b"\x01vorbis":
        channels, sample_rate = unpack_from("<BI", data, start + 11)
        return AudioHeader("OGG", sample_rate, channels, _end(data, serial))
    raise MediaError("unsupported", "Ogg without Opus or Vorbis: convert it to WAV")


def _end(data: bytes, serial: int) -> int:
    """Returns the position of the stream's end, in samples.

    Raises a `MediaError` unless the file contains the whole last page, and this page has the end-of-stream flag.
    """
    found = len(data)
    ended = False
    for _ in range(MAX_LAST_PAGES):
        found = data.rfind(_PAGE_START, 0, found)
        if found < 0:
            break
        if not _is_whole_page(data, found):
            raise truncated("Ogg file", "ends in a page")
        flags, position, page_serial = unpack_from("<BqI", data, found + 5)
        if page_serial != serial:
            continue
        ended = ended or bool(flags & _END_OF_STREAM)
        if not ended:
            raise truncated("Ogg file", "has no last page")
        if position != _NO_POSITION:
            end: int = position
            return end
    raise broken("Ogg file", "has no duration")


def _is_whole_page(data: bytes, start: int) -> bool:
    if start + _PAGE_HEADER_BYTES > len(data):
        return False
    segments = start + _PAGE_HEADER_BYTES
    end = segments + data[segments - 1]
    return end + sum(data[segments:end]) <= len(data)
