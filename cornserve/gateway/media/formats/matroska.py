"""Reads the tracks of WebM and Matroska files (RFC 9559)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from math import ceil, isfinite
from struct import unpack_from
from typing import NamedTuple

from cornserve.gateway.media.formats.base import (
    MAX_TRACKS,
    AudioHeader,
    VideoFormat,
    VideoHeader,
    broken,
    no_sound,
    too_many_frames,
    too_many_packets,
    too_many_tracks,
    truncated,
    unsupported_audio_codec,
    unsupported_audio_container,
    unsupported_codec,
)

MAGIC = b"\x1a\x45\xdf\xa3"


class _Id(IntEnum):
    """Identifiers of elements."""

    EBML = 0x1A45DFA3
    DOC_TYPE = 0x4282
    SEGMENT = 0x18538067
    INFO = 0x1549A966
    TIMESTAMP_SCALE = 0x2AD7B1
    DURATION = 0x4489
    TRACKS = 0x1654AE6B
    TRACK_ENTRY = 0xAE
    TRACK_NUMBER = 0xD7
    TRACK_TYPE = 0x83
    CODEC_ID = 0x86
    DEFAULT_DURATION = 0x23E383
    VIDEO = 0xE0
    PIXEL_WIDTH = 0xB0
    PIXEL_HEIGHT = 0xBA
    AUDIO = 0xE1
    SAMPLING_FREQUENCY = 0xB5
    CHANNELS = 0x9F
    CLUSTER = 0x1F43B675
    TIMESTAMP = 0xE7
    BLOCK_GROUP = 0xA0
    BLOCK = 0xA1
    SIMPLE_BLOCK = 0xA3


_MASTERS = frozenset(
    (_Id.EBML, _Id.SEGMENT, _Id.INFO, _Id.TRACKS, _Id.TRACK_ENTRY, _Id.VIDEO, _Id.AUDIO, _Id.CLUSTER, _Id.BLOCK_GROUP)
)
"""The elements whose content is read."""
_UNSIZED = frozenset((_Id.SEGMENT, _Id.CLUSTER))
"""The elements whose size may be unknown, as in recordings of browsers."""

_VIDEO_TRACK, _AUDIO_TRACK = 1, 2
_LACING = 0x06
_CODECS = {
    "V_MPEG4/ISO/AVC": "h264",
    "V_MPEGH/ISO/HEVC": "hevc",
    "V_VP8": "vp8",
    "V_VP9": "vp9",
    "V_AV1": "av1",
    "V_MPEG4/ISO/SP": "mpeg4",
    "V_MPEG4/ISO/ASP": "mpeg4",
    "V_MPEG4/ISO/AP": "mpeg4",
    "V_MJPEG": "mjpeg",
}
_AUDIO_CODECS = ("A_OPUS", "A_VORBIS", "A_AAC")
_LARGEST = [(1 << 7 * length) - 1 for length in range(9)]
"""The largest integer of variable length, by the number of its bytes. As a size, it means that the size is unknown."""
_SECOND = 1e9
"""Nanoseconds."""


class _Element(NamedTuple):
    id: int
    start: int
    """The position of the content."""
    end: int


@dataclass(slots=True)
class _SegmentTrack:
    number: int = 0
    kind: int = 0
    codec: str = ""
    width: int = 0
    height: int = 0
    sample_rate: int = 8000
    channels: int = 1
    frame_duration: int = 0
    """Nanoseconds, or 0 if unknown."""


def read_header(data: bytes, max_frames: int) -> VideoHeader:
    """Reads the first video track. Raises a `MediaError` if it has more than `max_frames` frames."""
    segment = _read_segment(data, _VIDEO_TRACK, max_frames)
    track = segment.track
    if track is None:
        raise broken("WebM", "has no video")
    if track.codec not in _CODECS:
        raise unsupported_codec(track.codec)
    format: VideoFormat = "WEBM" if segment.doc_type == "webm" else "MKV"
    return VideoHeader(format, track.width, track.height, segment.frames, segment.seconds)


def read_audio_header(data: bytes, max_packets: int, *, of_video: bool = False) -> AudioHeader:
    """Reads the first sound track. Raises a `MediaError` if it has more than `max_packets` packets.

    Args:
        of_video: whether the file may be of another type than WebM.
    """
    segment = _read_segment(data, _AUDIO_TRACK, max_packets)
    track = segment.track
    if track is None:
        raise no_sound("WebM")
    if not (of_video or segment.doc_type == "webm"):
        raise unsupported_audio_container(segment.doc_type)
    if track.codec not in _AUDIO_CODECS:
        raise unsupported_audio_codec(track.codec)
    samples = segment.seconds * track.sample_rate
    if not isfinite(samples):
        raise broken("WebM", "has a duration that is not finite")
    return AudioHeader("WEBM", track.sample_rate, track.channels, ceil(samples))


def _read_segment(data: bytes, kind: int, max_frames: int) -> _Segment:
    segment = _Segment(data, kind, max_frames)
    for element in _elements(data, 10_000 + 8 * max_frames):
        segment.read(element)
    return segment


@dataclass(slots=True)
class _Segment:
    """The properties of a file, which `read` collects."""

    data: bytes
    kind: int
    """The type of the track that is read."""
    max_frames: int
    """The number of frames, or of packets of sound, of this track."""
    doc_type: str = "matroska"
    tracks: list[_SegmentTrack] = field(default_factory=list)
    frames: int = 0
    _scale: int = 1_000_000
    """Nanoseconds per unit of time."""
    _duration: float = 0
    _cluster_time: int = 0
    _first: int = 0
    _last: int = 0
    """The smallest and the largest time of a frame."""

    @property
    def track(self) -> _SegmentTrack | None:
        return next((track for track in self.tracks if track.kind == self.kind), None)

    @property
    def seconds(self) -> float:
        """The duration: the declared one, or a longer one if frames follow it."""
        span = (self._last - self._first) * self._scale
        frame_duration = (self.track and self.track.frame_duration) or span / max(1, self.frames - 1)
        return max(self._duration * self._scale, span + frame_duration) / _SECOND

    def read(self, element: _Element) -> None:
        if element.id in _READERS:
            _READERS[element.id](self, element)
        elif self.tracks and element.id in _TRACK_READERS:
            _TRACK_READERS[element.id](self, element, self.tracks[-1])

    def _read_doc_type(self, element: _Element) -> None:
        self.doc_type = self._text(element)

    def _read_scale(self, element: _Element) -> None:
        self._scale = self._integer(element)

    def _read_duration(self, element: _Element) -> None:
        self._duration = self._float(element)

    def _read_cluster_time(self, element: _Element) -> None:
        self._cluster_time = self._integer(element)

    def _add_track(self, _: _Element) -> None:
        if len(self.tracks) == MAX_TRACKS:
            raise too_many_tracks("WebM")
        self.tracks.append(_SegmentTrack())

    def _read_number(self, element: _Element, track: _SegmentTrack) -> None:
        track.number = self._integer(element)

    def _read_type(self, element: _Element, track: _SegmentTrack) -> None:
        track.kind = self._integer(element)

    def _read_codec(self, element: _Element, track: _SegmentTrack) -> None:
        track.codec = self._text(element)

    def _read_frame_duration(self, element: _Element, track: _SegmentTrack) -> None:
        track.frame_duration = self._integer(element)

    def _read_width(self, element: _Element, track: _SegmentTrack) -> None:
        track.width = self._integer(element)

    def _read_height(self, element: _Element, track: _SegmentTrack) -> None:
        track.height = self._integer(element)

    def _read_sample_rate(self, element: _Element, track: _SegmentTrack) -> None:
        track.sample_rate = round(self._float(element))

    def _read_channels(self, element: _Element, track: _SegmentTrack) -> None:
        track.channels = self._integer(element)

    def _read_block(self, block: _Element) -> None:
        track = self.track
        number, position = _read_vint(self.data, block.start)
        if track is None or number != track.number:
            return
        offset, flags = unpack_from(">hB", self.data, position)
        time = self._cluster_time + offset
        self._first = min(self._first, time) if self.frames else time
        self._last = max(self._last, time) if self.frames else time
        self.frames += 1 + (self.data[position + 3] if flags & _LACING else 0)
        if self.frames > self.max_frames:
            is_video = self.kind == _VIDEO_TRACK
            raise too_many_frames(self.max_frames) if is_video else too_many_packets(self.max_frames)

    def _integer(self, element: _Element) -> int:
        return int.from_bytes(self.data[element.start : min(element.end, element.start + 8)])

    def _float(self, element: _Element) -> float:
        layout = {4: ">f", 8: ">d"}.get(element.end - element.start)
        value = float(unpack_from(layout, self.data, element.start)[0]) if layout else 0
        if not isfinite(value):
            raise broken("WebM", "has a number that is not finite")
        return value

    def _text(self, element: _Element) -> str:
        return self.data[element.start : min(element.end, element.start + 80)].rstrip(b"\0").decode("latin-1")


_READERS: dict[int, Callable[[_Segment, _Element], None]] = {
    _Id.DOC_TYPE: _Segment._read_doc_type,
    _Id.TIMESTAMP_SCALE: _Segment._read_scale,
    _Id.DURATION: _Segment._read_duration,
    _Id.TRACK_ENTRY: _Segment._add_track,
    _Id.TIMESTAMP: _Segment._read_cluster_time,
    _Id.BLOCK: _Segment._read_block,
    _Id.SIMPLE_BLOCK: _Segment._read_block,
}

_TRACK_READERS: dict[int, Callable[[_Segment, _Element, _SegmentTrack], None]] = {
    _Id.TRACK_NUMBER: _Segment._read_number,
    _Id.TRACK_TYPE: _Segment._read_type,
    _Id.CODEC_ID: _Segment._read_codec,
    _Id.DEFAULT_DURATION: _Segment._read_frame_duration,
    _Id.PIXEL_WIDTH: _Segment._read_width,
    _Id.PIXEL_HEIGHT: _Segment._read_height,
    _Id.SAMPLING_FREQUENCY: _Segment._read_sample_rate,
    _Id.CHANNELS: _Segment._read_channels,
}


def _elements(data: bytes, max_elements: int) -> Iterator[_Element]:
    """Yields the elements of all masters, in the order of the file. Raises a `MediaError` for a truncated file."""
    position = 0
    for _ in range(max_elements):
        if position >= len(data):
            return
        id, start = _read_id(data, position)
        size, start = _read_size(data, start)
        if size is None and id not in _UNSIZED:
            raise broken("WebM", "has an element of unknown size")
        end = len(data) if size is None else start + size
        if end > len(data):
            raise truncated("WebM", f"ends in an element of {size} bytes")
        yield _Element(id, start, end)
        position = start if id in _MASTERS else end
    raise broken("WebM", f"has more than {max_elements} elements")


def _read_id(data: bytes, position: int) -> tuple[int, int]:
    """Returns an ID, which includes the marker of its length, and the position after it."""
    end = position + _vint_length(data, position, 4)
    return int.from_bytes(data[position:end]), end


def _read_vint(data: bytes, position: int) -> tuple[int, int]:
    """Returns an integer of variable length and the position after it."""
    length = _vint_length(data, position, 8)
    end = position + length
    return int.from_bytes(data[position:end]) & _LARGEST[length], end


def _read_size(data: bytes, position: int) -> tuple[int | None, int]:
    """Returns the size of an element, or None if it is unknown, and the position after it."""
    size, end = _read_vint(data, position)
    return None if size == _LARGEST[end - position] else size, end


def _vint_length(data: bytes, position: int, longest: int) -> int:
    length = 9 - data[position].bit_length()
    if length > longest:
        raise broken("WebM", "has invalid data in place of an element")
    if position + length > len(data):
        raise truncated("WebM", "ends in an element")
    return length
