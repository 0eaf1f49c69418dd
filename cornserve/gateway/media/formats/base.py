from __future__ import annotations

from typing import Literal, NamedTuple

from cornserve.gateway.media.errors import MediaError
from cornserve.task import Blob
from cornserve_tasklib.media import Audio, Image

Format = Literal["PNG", "JPEG", "WEBP", "GIF"]
"""Pillow's name of a format."""


class ImageHeader(NamedTuple):
    format: Format
    width: int
    height: int

    def to_media(self, data: Blob, digest: str, where: str) -> Image:
        return Image(data=data, format=self.format, width=self.width, height=self.height, digest=digest, where=where)


class AudioHeader(NamedTuple):
    format: Literal["WAV", "MP3", "FLAC", "OGG"]
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


def animated(name: str) -> MediaError:
    return MediaError("unsupported", f"animated {name}: send a single frame")


def truncated(name: str, problem: str = "has no end marker") -> MediaError:
    return MediaError("invalid", f"truncated: the {name} {problem}")


def truncated_header() -> MediaError:
    return MediaError("invalid", "truncated: the file ends in its header")


def broken(name: str, problem: str) -> MediaError:
    return MediaError("invalid", f"broken: the {name} {problem}")
