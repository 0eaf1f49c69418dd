"""AAC in frames with a header each (ADTS, ISO/IEC 13818-7, section 6.2)."""

from __future__ import annotations

from typing import NamedTuple

from cornserve import id3_tags
from cornserve.gateway.media.formats.base import AudioHeader, broken, truncated

_SAMPLE_RATES = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)
_HEADER_BYTES = 7
_SAMPLES = 1024
_EIGHT_CHANNELS = 7
"""The configuration of 7.1 channels. Lower ones are the number of channels."""


class _AacFrame(NamedTuple):
    nbytes: int
    samples: int
    sample_rate: int
    channels: int


def is_aac(data: bytes) -> bool:
    return _read_frame(data, 0) is not None


def read_header(data: bytes, max_seconds: int) -> AudioHeader:
    first = _read_frame(data, 0)
    assert first is not None
    samples = position = 0
    while position < len(data) and samples <= max_seconds * first.sample_rate:
        frame = _read_frame(data, position)
        if frame is None and data.startswith(id3_tags.TRAILING, position):
            break
        if frame is None and len(data) - position >= _HEADER_BYTES:
            raise broken("AAC", "has invalid data in place of a frame")
        if frame is None or position + frame.nbytes > len(data):
            raise truncated("AAC", "ends in a frame")
        position += frame.nbytes
        samples += frame.samples
    return AudioHeader("AAC", first.sample_rate, first.channels, samples)


def _read_frame(data: bytes, position: int) -> _AacFrame | None:
    """Returns a frame, or None in place of other data."""
    header = int.from_bytes(data[position : position + _HEADER_BYTES])
    rate, channels, nbytes = header >> 34 & 0xF, header >> 30 & 7, header >> 13 & 0x1FFF
    # The layer is 0, unlike in MP3.
    is_frame = header >> 44 == 0xFFF and header >> 41 & 3 == 0
    if not is_frame or len(data) - position < _HEADER_BYTES or rate >= len(_SAMPLE_RATES) or nbytes <= _HEADER_BYTES:
        return None
    blocks = 1 + (header & 3)
    return _AacFrame(nbytes, blocks * _SAMPLES, _SAMPLE_RATES[rate], 8 if channels == _EIGHT_CHANNELS else channels)
