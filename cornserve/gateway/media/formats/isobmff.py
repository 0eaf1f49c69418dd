"""Reads the tracks of MP4, M4A and QuickTime files (ISO/IEC 14496-12)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import atan2, ceil, degrees
from struct import unpack_from
from typing import NamedTuple

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import (
    MAX_TRACKS,
    QUARTER_TURNS,
    AudioHeader,
    Rotation,
    VideoFormat,
    VideoHeader,
    broken,
    no_sound,
    too_many_frames,
    too_many_packets,
    too_many_tracks,
    truncated,
    unsupported_audio_codec,
    unsupported_codec,
)

MAX_OTHER_SAMPLES = 1_000_000
"""The samples of a track that is not read. Decoders keep an entry for each, except for uncompressed sound."""

_FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"mvex", b"moof", b"traf")
_CODECS = {
    **dict.fromkeys((b"avc1", b"avc3"), "h264"),
    **dict.fromkeys((b"hvc1", b"hev1"), "hevc"),
    **dict.fromkeys((b"jpeg", b"mjpa", b"mjpb"), "mjpeg"),
    b"vp08": "vp8",
    b"vp09": "vp9",
    b"av01": "av1",
    b"mp4v": "mpeg4",
}
"""Codecs by the type of the sample entry."""
_AUDIO_CODECS = (b"mp4a", b"Opus")
_VIDEO = b"vide"
_SOUND = b"soun"
_DATA_HANDLER = b"dhlr"


class IsoBox(NamedTuple):
    kind: bytes
    start: int
    """The position of the content."""
    end: int


@dataclass(slots=True)
class _MovieTrack:
    number: int = 0
    kind: bytes = b""
    codec: bytes = b""
    width: int = 0
    height: int = 0
    rotation: Rotation = 0
    sample_rate: int = 0
    channels: int = 0
    timescale: int = 0
    duration: int = 0
    samples: int = 0
    is_uniform: bool = False
    """Whether all samples take one unit of time, as in uncompressed sound."""
    default_duration: int = 0
    """The duration of a sample in fragments."""

    @property
    def seconds(self) -> float:
        return self.duration / self.timescale if self.timescale else 0


def is_isobmff(data: bytes) -> bool:
    return data[4:8] in _FIRST_BOXES


def read_header(data: bytes, max_frames: int) -> VideoHeader:
    """Reads the first video track. Raises a `MediaError` if it has more than `max_frames` frames."""
    track = _read_track(data, _VIDEO, max_frames)
    if track is None:
        raise broken("MP4", "has no video")
    if track.codec not in _CODECS:
        raise unsupported_codec(track.codec.decode("latin-1"))
    is_quicktime = data[4:8] != b"ftyp" or data[8:12] == b"qt  "
    format: VideoFormat = "MOV" if is_quicktime else "MP4"
    return VideoHeader(format, track.width, track.height, track.samples, track.seconds, track.rotation)


def read_audio_header(data: bytes, max_packets: int) -> AudioHeader:
    """Reads the first sound track. Raises a `MediaError` if it has more than `max_packets` packets."""
    track = _read_track(data, _SOUND, max_packets)
    if track is None:
        raise no_sound("M4A")
    if track.codec not in _AUDIO_CODECS:
        raise unsupported_audio_codec(track.codec.decode("latin-1"))
    sample_rate = track.sample_rate or track.timescale
    return AudioHeader("M4A", sample_rate, track.channels, ceil(track.seconds * sample_rate))


def _read_track(data: bytes, kind: bytes, max_samples: int) -> _MovieTrack | None:
    """Returns the first track of a kind."""
    movie = _Movie(data, kind, max_samples)
    for box in _read_boxes(data, 10_000 + 8 * max_samples):
        movie.read(box)
    if not movie.tracks:
        raise truncated("MP4", "has no header")
    return next((track for track in movie.tracks if track.kind == kind), None)


@dataclass(slots=True)
class _Movie:
    """The tracks of a file, which `read` collects."""

    data: bytes
    kind: bytes
    """The kind of the track that is read."""
    max_samples: int
    """The number of samples, which are frames or packets, of such a track."""
    tracks: list[_MovieTrack] = field(default_factory=list)
    _fragment: _MovieTrack = field(default_factory=_MovieTrack)
    """The track of the current fragment."""
    _fragment_duration: int = 0

    def read(self, box: IsoBox) -> None:
        if box.kind == b"trak":
            if len(self.tracks) == MAX_TRACKS:
                raise too_many_tracks("MP4")
            self.tracks.append(_MovieTrack())
        elif box.kind in _READERS:
            _READERS[box.kind](self, box)
        elif box.kind in _TRACK_READERS:
            if not self.tracks:
                raise broken("MP4", "has a part of a track outside of the tracks")
            _TRACK_READERS[box.kind](self, box, self.tracks[-1])

    def _read_track_header(self, box: IsoBox, track: _MovieTrack) -> None:
        offset = 12 if self.data[box.start] else 0
        (track.number,) = unpack_from(">I", self.data, box.start + (20 if offset else 12))
        a, b = unpack_from(">ii", self.data, box.start + 40 + offset)
        track.rotation = QUARTER_TURNS.get(round(degrees(atan2(b, a))) % 360, 0)

    def _read_media_header(self, box: IsoBox, track: _MovieTrack) -> None:
        layout, offset = (">IQ", 20) if self.data[box.start] else (">II", 12)
        track.timescale, _ = unpack_from(layout, self.data, box.start + offset)

    def _read_handler(self, box: IsoBox, track: _MovieTrack) -> None:
        component, kind = unpack_from(">4s4s", self.data, box.start + 4)
        if component != _DATA_HANDLER:
            track.kind = kind

    def _read_sample_description(self, box: IsoBox, track: _MovieTrack) -> None:
        (track.codec,) = unpack_from("4s", self.data, box.start + 12)
        if track.kind == _VIDEO:
            track.width, track.height = unpack_from(">HH", self.data, box.start + 40)
        elif track.kind == _SOUND:
            track.channels, track.sample_rate = unpack_from(">H6xH", self.data, box.start + 32)

    def _read_sample_sizes(self, box: IsoBox, track: _MovieTrack) -> None:
        size, count = unpack_from(">II", self.data, box.start + 4)
        if count * (size or 1) > len(self.data) or (size == 0 and count * 4 > box.end - box.start - 12):
            raise broken("MP4", "has more frames than bytes")
        self._add_samples(track, count)

    def _read_compact_sample_sizes(self, box: IsoBox, track: _MovieTrack) -> None:
        bits, count = unpack_from(">BI", self.data, box.start + 7)
        if count * bits > 8 * (box.end - box.start - 12):
            raise broken("MP4", "has more frames than bytes")
        self._add_samples(track, count)

    def _read_durations(self, box: IsoBox, track: _MovieTrack) -> None:
        (entries,) = unpack_from(">I", self.data, box.start + 4)
        if entries * 8 > box.end - box.start - 8:
            raise broken("MP4", "has a table that exceeds its box")
        if track.kind == self.kind and entries > self.max_samples:
            raise self._too_many()
        track.is_uniform = entries == 1 and unpack_from(">I", self.data, box.start + 12) == (1,)
        if track.kind == self.kind:
            table = memoryview(self.data)[box.start + 8 : box.start + 8 + 8 * entries]
            track.duration += sum(count * duration for count, duration in struct.iter_unpack(">II", table))

    def _read_track_defaults(self, box: IsoBox) -> None:
        number, _, duration = unpack_from(">III", self.data, box.start + 4)
        for track in self.tracks:
            if track.number == number:
                track.default_duration = duration

    def _read_fragment_header(self, box: IsoBox) -> None:
        flags, number = unpack_from(">II", self.data, box.start)
        self._fragment = next((track for track in self.tracks if track.number == number), _MovieTrack())
        self._fragment_duration = self._fragment.default_duration
        if flags & 0x8:
            offset = 8 + (8 if flags & 0x1 else 0) + (4 if flags & 0x2 else 0)
            (self._fragment_duration,) = unpack_from(">I", self.data, box.start + offset)

    def _read_fragment_run(self, box: IsoBox) -> None:
        flags, count = unpack_from(">II", self.data, box.start)
        row = 4 * (flags >> 8 & 0xF).bit_count()
        table = box.start + 8 + (4 if flags & 0x1 else 0) + (4 if flags & 0x4 else 0)
        if count * row > box.end - table:
            raise broken("MP4", "has a table that exceeds its box")
        track = self._fragment
        self._add_samples(track, count)
        if track.kind != self.kind:
            return
        if flags & 0x100:
            rows = range(table, table + count * row, row)
            track.duration += sum(unpack_from(">I", self.data, position)[0] for position in rows)
        else:
            track.duration += count * self._fragment_duration

    def _add_samples(self, track: _MovieTrack, count: int) -> None:
        track.samples += count
        if track.kind == self.kind and track.samples > self.max_samples:
            raise self._too_many()
        if track.kind != self.kind and not track.is_uniform and track.samples > MAX_OTHER_SAMPLES:
            raise broken("MP4", f"has a track with more than {MAX_OTHER_SAMPLES} samples")

    def _too_many(self) -> MediaError:
        return too_many_frames(self.max_samples) if self.kind == _VIDEO else too_many_packets(self.max_samples)


_READERS: dict[bytes, Callable[[_Movie, IsoBox], None]] = {
    b"trex": _Movie._read_track_defaults,
    b"tfhd": _Movie._read_fragment_header,
    b"trun": _Movie._read_fragment_run,
}

_TRACK_READERS: dict[bytes, Callable[[_Movie, IsoBox, _MovieTrack], None]] = {
    b"tkhd": _Movie._read_track_header,
    b"mdhd": _Movie._read_media_header,
    b"hdlr": _Movie._read_handler,
    b"stsd": _Movie._read_sample_description,
    b"stsz": _Movie._read_sample_sizes,
    b"stz2": _Movie._read_compact_sample_sizes,
    b"stts": _Movie._read_durations,
}


def _read_boxes(data: bytes, max_boxes: int) -> Iterator[IsoBox]:
    """Yields the boxes of all containers, in the order of the file. Raises a `MediaError` for a truncated file."""
    position = 0
    for _ in range(max_boxes):
        if len(data) - position < 8:
            if data[position:].strip(b"\0"):
                raise truncated("MP4", "ends in a box")
            return
        size, kind = unpack_from(">I4s", data, position)
        start = position + 8
        if size == 1:
            (size,) = unpack_from(">Q", data, start)
            start += 8
        end = position + size if size else len(data)
        if end < start:
            raise broken("MP4", "has a box with an invalid size")
        if end > len(data):
            raise truncated("MP4", f"ends in a box of {size} bytes")
        yield IsoBox(kind, start, end)
        position = start if kind in _CONTAINERS else end
    raise broken("MP4", f"has more than {max_boxes} boxes")
