"""Chats with the sizes of a workload: random words, images, audio and videos."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt, sqrt
from random import Random
from typing import Any, Self

from pydantic_core import to_json

from cornserve.bench.media_files import audio_url, image_url, video_url
from cornserve.bench.requests import random_text
from cornserve.bench.server_api import Operation
from cornserve_planner.requests.request import WorkloadAudio, WorkloadImage, WorkloadRequest, WorkloadVideo
from cornserve_tasklib.media import (
    AUDIO_TOKENS_PER_SECOND,
    PIXELS_PER_TOKEN,
    VIDEO_FRAMES_PER_SECOND,
    VIDEO_FRAMES_PER_TOKEN,
)

TOKEN_SIDE = isqrt(PIXELS_PER_TOKEN)
"""The side of the square of pixels of one token, for images and videos whose pixels are unknown."""

VIDEO_SIDE = 16 * TOKEN_SIDE
"""The width and height in pixels of videos of unknown pixels and duration."""

VIDEO_SECONDS = 5.0
"""The duration of videos of which only the pixels are known."""


@dataclass(frozen=True, slots=True)
class GeneratedVideo:
    """The sizes of a video.

    Args:
        width: width in pixels.
        height: height in pixels.
        frames: frames, all of which a model samples that reads `VIDEO_FRAMES_PER_SECOND` of such a video.
        seconds: duration.
    """

    width: int
    height: int
    frames: int
    seconds: float

    @classmethod
    def of(cls, video: WorkloadVideo) -> Self:
        """Returns the known sizes, and derives the others from the tokens, as of Qwen2.5-VL."""
        pixels = video.width * video.height if video.width and video.height else VIDEO_SIDE**2
        if video.frames or video.seconds:
            frames = video.frames or ceil((video.seconds or 0) * VIDEO_FRAMES_PER_SECOND)
        elif video.tokens:
            frames = VIDEO_FRAMES_PER_TOKEN * max(1, round(video.tokens * PIXELS_PER_TOKEN / pixels))
        else:
            frames = round(VIDEO_SECONDS * VIDEO_FRAMES_PER_SECOND)
        if video.tokens and not video.width:
            pixels = round(video.tokens * PIXELS_PER_TOKEN / ceil(frames / VIDEO_FRAMES_PER_TOKEN))
        side = TOKEN_SIDE * max(1, round(sqrt(pixels) / TOKEN_SIDE))
        seconds = video.seconds or frames / VIDEO_FRAMES_PER_SECOND
        return cls(video.width or side, video.height or side, frames, seconds)


@dataclass(frozen=True, slots=True)
class GeneratedChat:
    """Chats of random words, images, audio and videos, which no cache contains.

    Args:
        words: words of about one token each.
        images: width and height of each image in pixels.
        output_tokens: tokens of the response; 0 for the default of the app.
        audios: seconds of each audio.
        videos: sizes of each video. The videos have no sound.
        is_spoken: whether the response is spoken, with the length that the model gives it.
    """

    words: int
    images: tuple[tuple[int, int], ...]
    output_tokens: int
    audios: tuple[float, ...] = ()
    videos: tuple[GeneratedVideo, ...] = ()
    is_spoken: bool = False

    @classmethod
    def of(cls, request: WorkloadRequest) -> Self:
        """Returns a chat of the sizes of a request."""
        return cls(
            request.text_tokens,
            tuple(pixel_size(image) for image in request.images),
            request.output_tokens,
            tuple(_seconds(audio) for audio in request.audios),
            tuple(GeneratedVideo.of(video) for video in request.videos),
            is_spoken="audio" in request.output_modalities,
        )

    @property
    def operation(self) -> Operation:
        return "chats with spoken responses" if self.is_spoken else "chats"

    @property
    def key(self) -> bytes:
        return repr(self).encode()

    def make(self, random: Random) -> bytes:
        return to_json(self.body(random))

    def body(self, random: Random) -> dict[str, Any]:
        """Returns the messages, and the options of the length and the modalities of the response."""
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": image_url(width, height, random)}}
            for width, height in self.images
        ]
        parts += [{"type": "audio_url", "audio_url": {"url": audio_url(seconds, random)}} for seconds in self.audios]
        parts += [
            {
                "type": "video_url",
                "video_url": {"url": video_url(video.width, video.height, video.frames, video.seconds, random)},
            }
            for video in self.videos
        ]
        parts.append({"type": "text", "text": random_text(self.words, random)})
        limit = {"max_tokens": self.output_tokens, "ignore_eos": True} if self.output_tokens else {}
        spoken = {"modalities": ["text", "audio"]} if self.is_spoken else {}
        return {"messages": [{"role": "user", "content": parts}], **limit, **spoken}


def pixel_size(image: WorkloadImage) -> tuple[int, int]:
    """Returns width and height of an image, by its tokens if they are unknown."""
    side = TOKEN_SIDE * max(1, round(sqrt(image.tokens or 1)))
    return image.width or side, image.height or side


def _seconds(audio: WorkloadAudio) -> float:
    return audio.seconds or (audio.tokens or 1) / AUDIO_TOKENS_PER_SECOND
