from __future__ import annotations

import re
from struct import unpack_from

from cornserve import id3_tags
from cornserve.gateway.media.formats.base import AudioHeader, broken, truncated

_KBPS = {
    1: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Bit rates by MPEG version, from index 1."""
_SAMPLE_RATES = (44_100, 48_000, 32_000)
_DIVISORS = {3: 1, 2: 2, 0: 4}
"""Divisors of the sample rates of MPEG 1, 2 and 2.5."""
_SUMMARY = re.compile(b"Xing|Info")
"""The start of the summary that encoders write to a first frame without sound."""
_SUMMARY_OFFSET = 38
"""The largest offset of the summary in its frame."""
_HAS_FRAMES = 1

_LAYER_3 = 1
_MONO = 3


def is_mp3(data: bytes) -> bool:
    return _read_frame(data, 0) is not None


def read_header(data: bytes, max_seconds: int) -> AudioHeader:
    first = _read_frame(data, 0)
    assert first is not None
    _, samples_per_frame, sample_rate, channels = first
    declared_samples = _declared_frames(data) * samples_per_frame
    samples = position = 0
    max_samples = max_seconds * sample_rate
    while position < len(data) and samples <= max_samples:
        frame = _read_frame(data, position)
        if frame is None and _is_cut_header(data, position):
            raise truncated("MP3", "ends in a frame")
        if frame is None or frame[2] != sample_rate:
            if _is_padding(data, position):
                break
            raise broken("MP3", "has invalid data in place of a frame")
        position += frame[0]
        if position > len(data):
            raise truncated("MP3", "ends in a frame")
        samples += samples_per_frame
    if samples < declared_samples and samples <= max_samples:
        raise truncated("MP3", "has fewer frames than it declares")
    return AudioHeader("MP3", sample_rate, channels, samples)


def _declared_frames(data: bytes) -> int:
    """Returns the number of frames that the first frame declares, or 0 if it declares none."""
    summary = _SUMMARY.search(data, 0, _SUMMARY_OFFSET + 4)
    if summary is None:
        return 0
    flags, frames = unpack_from(">II", data, summary.end())
    return int(frames) if flags & _HAS_FRAMES else 0


def _is_cut_header(data: bytes, position: int) -> bool:
    return len(data) - position < 4 and data[position] == 0xFF


def _is_padding(data: bytes, position: int) -> bool:
    """Returns whether the file contains no more frames: fewer bytes than a header, a tag or zeros follow."""
    return len(data) - position < 4 or data.startswith(id3_tags.TRAILING, position) or not data[position:].strip(b"\0")


def _read_frame(data: bytes, position: int) -> tuple[int, int, int, int] | None:
    """Returns a frame's bytes, samples, samples per second and channels, or None in place of other data."""
    if len(data) - position < 4:
        return None
    (header,) = unpack_from(">I", data, position)
    version, layer = header >> 19 & 3, header >> 17 & 3
    kbps_index, rate_index = header >> 12 & 15, header >> 10 & 3
    is_frame = header >> 21 == 0x7FF and version in _DIVISORS and layer == _LAYER_3
    if not (is_frame and 0 < kbps_index < 15 and rate_index < 3):
        return None
    generation = 1 if version == 3 else 2
    sample_rate = _SAMPLE_RATES[rate_index] // _DIVISORS[version]
    samples = 1152 // generation
    nbytes = samples // 8 * _KBPS[generation][kbps_index - 1] * 1000 // sample_rate + (header >> 9 & 1)
    return nbytes, samples, sample_rate, 1 if header >> 6 & 3 == _MONO else 2
