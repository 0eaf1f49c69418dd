"""Checks a medium's format and size before an executor decodes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from cornserve.gateway.media.audio_header import MAX_PACKETS_PER_SECOND, read_audio_header
from cornserve.gateway.media.errors import MediaError, NoSoundError
from cornserve.gateway.media.formats.base import AudioHeader
from cornserve.gateway.media.image_header import read_image_header
from cornserve.gateway.media.video_header import read_sound_header, read_video_header
from cornserve.limits import MIB, Limits
from cornserve.task import Blob
from cornserve_tasklib.media import Audio, Media, Modality

MIN_VIDEO_SIDE = 4
"""The minimum width and height of a video. Libraries could mistake a shorter side for the color axis of an array."""

KIB = 1024
MEGA = 1_000_000
GIGA = 1_000_000_000

MAX_SAMPLE_RATE = 192_000
MAX_CHANNELS = 8


class MediaHeader(Protocol):
    """The properties of a file, from its header."""

    @property
    def format(self) -> str: ...

    def to_media(self, data: Blob, digest: str, where: str) -> Media: ...


@dataclass(frozen=True, slots=True)
class MediaRules:
    """The accepted media of a modality."""

    modality: Modality
    accept: str
    """The value of the header `Accept` of downloads."""
    bytes_limit: str
    """The name of the limit on the file's size in MiB."""
    inline_bytes: int
    """The size up to which files are inspected on the event loop, because a thread would take longer."""
    read_header: Callable[[bytes, Limits], MediaHeader]
    """Reads and checks the header. Raises a `MediaError`."""

    def max_bytes(self, limits: Limits) -> int:
        mib: int = getattr(limits, self.bytes_limit.replace("-", "_"))
        return mib * MIB

    def check_bytes(self, size: int, limits: Limits) -> None:
        if size > self.max_bytes(limits):
            raise MediaError("too_large", f"the file has {size} bytes ({limits.hint(self.bytes_limit)})")

    async def inspect(self, data: bytes, limits: Limits, where: str) -> Media:
        """Returns the inspected medium. Raises a `MediaError`.

        The content determines the format: the media types that clients and servers declare are often wrong.

        Args:
            where: see `MediaFile.where`.
        """
        if len(data) <= self.inline_bytes:
            return self._inspect(data, limits, where)
        return await asyncio.to_thread(self._inspect, data, limits, where)

    def _inspect(self, data: bytes, limits: Limits, where: str) -> Media:
        return self.read_header(data, limits).to_media(Blob(data), sha256(data).hexdigest(), where)


def _read_image(data: bytes, limits: Limits) -> MediaHeader:
    header = read_image_header(data)
    size = f"the image has {header.width}×{header.height} pixels"
    if min(header.width, header.height) < 1:
        raise MediaError("too_small", f"{size}: each side must have at least 1")
    if header.width * header.height > limits.image_megapixels * MEGA:
        raise MediaError("too_large", f"{size} ({limits.hint('image-megapixels')})")
    return header


async def inspect_sound(video: Media, limits: Limits) -> Audio:
    """Returns the sound of an inspected video. Raises a `MediaError`."""
    assert video.data is not None
    try:
        header = await asyncio.to_thread(_read_sound, video.data.data, limits)
    except NoSoundError:
        message = "the video has no sound: send it without use_audio_in_video"
        raise MediaError("unsupported", message) from None
    except MediaError as error:
        raise MediaError(error.problem, f"the sound of the video: {error.message}") from error
    audio = header.to_media(video.data, video.digest, video.where)
    return audio.model_copy(update={"of_video": True})


def _read_sound(data: bytes, limits: Limits) -> AudioHeader:
    return _checked(read_sound_header(data, limits.audio_seconds * MAX_PACKETS_PER_SECOND), limits)


def _read_audio(data: bytes, limits: Limits) -> MediaHeader:
    return _checked(read_audio_header(data, limits.audio_seconds), limits)


def _checked(header: AudioHeader, limits: Limits) -> AudioHeader:
    if not 0 < header.sample_rate <= MAX_SAMPLE_RATE:
        raise MediaError(
            "unsupported", f"the audio has {header.sample_rate} samples per second: send 1 to {MAX_SAMPLE_RATE}"
        )
    if not 0 < header.channels <= MAX_CHANNELS:
        raise MediaError("unsupported", f"the audio has {header.channels} channels: send 1 to {MAX_CHANNELS}")
    if header.samples <= 0:
        raise MediaError("too_small", "the audio has no samples")
    if header.seconds > limits.audio_seconds:
        raise MediaError("too_large", f"the audio takes {header.seconds:.1f} s ({limits.hint('audio-seconds')})")
    return header


def _read_video(data: bytes, limits: Limits) -> MediaHeader:
    header = read_video_header(data, limits.video_frames)
    size = f"the video has {header.width}×{header.height} pixels"
    if min(header.width, header.height) < MIN_VIDEO_SIDE:
        raise MediaError("too_small", f"{size}: each side must have at least {MIN_VIDEO_SIDE}")
    if header.width * header.height > limits.video_megapixels * MEGA:
        raise MediaError("too_large", f"{size} ({limits.hint('video-megapixels')})")
    if header.frames == 0:
        raise MediaError("too_small", "the video has no frames")
    if header.seconds <= 0:
        raise MediaError("too_small", "the video takes 0 s")
    if header.seconds > limits.video_seconds:
        raise MediaError("too_large", f"the video takes {header.seconds:.1f} s ({limits.hint('video-seconds')})")
    return header


RULES: dict[Modality, MediaRules] = {
    "image": MediaRules(
        modality="image",
        accept="image/*, */*;q=0.5",
        bytes_limit="image-mib",
        inline_bytes=256 * KIB,
        read_header=_read_image,
    ),
    "audio": MediaRules(
        modality="audio",
        accept="audio/*, */*;q=0.5",
        bytes_limit="audio-mib",
        inline_bytes=16 * KIB,  # MP3 has a header in each frame.
        read_header=_read_audio,
    ),
    "video": MediaRules(
        modality="video",
        accept="video/*, */*;q=0.5",
        bytes_limit="video-mib",
        inline_bytes=16 * KIB,  # Each frame of WebM and GIF has a header.
        read_header=_read_video,
    ),
}
"""The accepted media of each modality."""
