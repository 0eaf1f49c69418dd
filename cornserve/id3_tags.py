"""Tags of titles and pictures, which programs put around the frames of MP3, AAC and FLAC files."""

from __future__ import annotations

MAGIC = b"ID3"

TRAILING = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", MAGIC, b"3DI")
"""The starts of tags that follow the frames."""

MAX_TAGS = 1000
"""The maximum number of tags before the frames."""

_HEADER_BYTES = 10
_HAS_FOOTER = 0x10


def leading_tag_bytes(data: bytes) -> int:
    """Returns the position of the first byte after the ID3v2 tags, which may be beyond the end of the file."""
    position = 0
    for _ in range(MAX_TAGS):
        if not data.startswith(MAGIC, position):
            break
        flags, size = int.from_bytes(data[position + 5 : position + 6]), 0
        for byte in data[position + 6 : position + _HEADER_BYTES]:
            size = size << 7 | byte & 0x7F
        position += _HEADER_BYTES + size + (_HEADER_BYTES if flags & _HAS_FOOTER else 0)
    return position
