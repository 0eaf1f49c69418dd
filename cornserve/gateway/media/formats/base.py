from __future__ import annotations

from typing import Final, Literal, NamedTuple

from cornserve.gateway.media.errors import MediaError, NoSoundError
from cornserve.task import Blob
from cornserve_tasklib.media import Audio, Image, Video

Format = Literal["PNG", "JPEG", "WEBP", "GIF", "AVIF", "BMP", "TIFF", "JPEG2000"]
"""Pillow's name of a format."""


class ImageHeader(NamedTuple):
    format: Format
    width: int
    height: int

    def to_media(self, data: Blob, digest: str, where: str) -> Image:
        return Image(data=data, format=self.format, width=self.width, height=self.height, digest=digest, where=where)


class AudioHeader(NamedTuple):
    format: Literal["WAV", "AIFF", "MP3", "AAC", "FLAC", "OGG", "M4A", "WEBM", "AVI"]
    sample_rate: int
    channels: int
    samples: int
    """The number of samples of each channel: at least those that a decoder will return."""

    @property
    def seconds(self) -> float:
        return self.samples / self.sample_rate

    def to_media(self, data: Blob, digest: str, where: str) -> Audio:
        return Audio(
            data=data,
            format=self.format,
            sample_rate=self.sample_rate,
            channels=self.channels,
            seconds=self.seconds,
            digest=digest,
            where=where,
        )


MAX_TRACKS: Final = 64
"""The tracks of a file. Readers search all of them for each of its parts."""

Rotation = Literal[0, 90, 180, 270]
"""Degrees, clockwise."""

QUARTER_TURNS: Final[dict[int, Rotation]] = {0: 0, 90: 90, 180: 180, 270: 270}


VideoFormat = Literal["MP4", "MOV", "WEBM", "MKV", "AVI", "GIF"]


class VideoHeader(NamedTuple):
    format: VideoFormat
    width: int
    height: int
    frames: int
    """The number of frames: at least those that a decoder will return."""
    seconds: float
    rotation: Rotation = 0

    def to_media(self, data: Blob, digest: str, where: str) -> Video:
        return Video(
            data=data,
            format=self.format,
            width=self.width,
            height=self.height,
            frames=self.frames,
            seconds=self.seconds,
            rotation=self.rotation,
            digest=digest,
            where=where,
        )


def too_many_frames(max_frames: int) -> MediaError:
    hint = f"limit video-frames={max_frames}, see `cornserve up --limit`"
    return MediaError("too_large", f"the video has more than {max_frames} frames ({hint})")


def too_many_packets(max_packets: int) -> MediaError:
    return MediaError("too_large", f"the audio has more than {max_packets} packets: convert it to WAV")


def unsupported_audio_codec(name: str) -> MediaError:
    return MediaError("unsupported", f"unsupported audio codec {name!r}: convert the audio to WAV")


def unsupported_audio_container(name: str) -> MediaError:
    return MediaError("unsupported", f"unsupported container of audio {name!r}: send WebM, or convert the audio to WAV")


def unsupported_codec(name: str) -> MediaError:
    return MediaError("unsupported", f"unsupported video codec {name!r}: convert the video to H.264")


def truncated(name: str, problem: str = "has no end marker") -> MediaError:
    return MediaError("invalid", f"truncated: the {name} {problem}")


def truncated_header() -> MediaError:
    return MediaError("invalid", "truncated: the file ends in its header")


def too_many_tracks(name: str) -> MediaError:
    return broken(name, f"has more than {MAX_TRACKS} tracks")


def no_sound(name: str) -> NoSoundError:
    return NoSoundError("invalid", f"broken: the {name} has no sound")


def broken(name: str, problem: str) -> MediaError:
    return MediaError("invalid", f"broken: the {name} {problem}")
