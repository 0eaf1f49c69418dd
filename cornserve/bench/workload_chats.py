"""Chats with the sizes of a workload: random words, images and audio."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any

from pydantic_core import to_json

from cornserve.bench.media_files import audio_url, image_url
from cornserve.bench.requests import WORDS, RequestError
from cornserve_planner.workload.request import WorkloadAudio, WorkloadImage, WorkloadRequest
from cornserve_planner.workload.request_files import read_requests
from cornserve_tasklib.media import AUDIO_TOKENS_PER_SECOND

PIXELS_PER_TOKEN = 28
"""The side of the square of pixels of one image token, for images whose pixels are unknown."""


@dataclass(frozen=True, slots=True)
class GeneratedChat:
    """Chats of random words, images and audio, which no cache contains.

    Args:
        words: words of about one token each.
        images: width and height of each image in pixels.
        output_tokens: tokens of the response; 0 for the default of the app.
        audios: seconds of each audio.
    """

    words: int
    images: tuple[tuple[int, int], ...]
    output_tokens: int
    audios: tuple[float, ...] = ()

    @property
    def key(self) -> bytes:
        return repr(self).encode()

    def make(self, random: Random) -> bytes:
        return to_json(self.body(random))

    def body(self, random: Random) -> dict[str, Any]:
        """Returns the messages, and the options of the length of the response."""
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": image_url(width, height, random)}}
            for width, height in self.images
        ]
        parts += [{"type": "audio_url", "audio_url": {"url": audio_url(seconds, random)}} for seconds in self.audios]
        parts.append({"type": "text", "text": " ".join(random.choices(WORDS, k=max(1, self.words)))})
        limit = {"max_tokens": self.output_tokens, "ignore_eos": True} if self.output_tokens else {}
        return {"messages": [{"role": "user", "content": parts}], **limit}


def workload_chats(path: Path) -> list[GeneratedChat]:
    """Returns the chats of a planner's file of requests.

    Raises `RequestError` for media that cannot be generated, and the planner's `InvalidInputError`.
    """
    return [_chat(request, path) for request in read_requests(path)]


def _chat(request: WorkloadRequest, path: Path) -> GeneratedChat:
    for medium, found in (
        ("videos", request.videos),
        ("output_images", request.output_images),
        ("output_audio_seconds", request.output_audio_seconds),
    ):
        if found:
            raise RequestError(
                f"{path}: the request at {request.arrival:g} s has {medium}, which cannot be generated: remove them, "
                "or give requests of the app"
            )
    return GeneratedChat(
        request.text_tokens,
        tuple(_pixels(image) for image in request.images),
        request.output_tokens,
        tuple(_seconds(audio) for audio in request.audios),
    )


def _pixels(image: WorkloadImage) -> tuple[int, int]:
    side = PIXELS_PER_TOKEN * max(1, round(sqrt(image.tokens or 1)))
    return image.width or side, image.height or side


def _seconds(audio: WorkloadAudio) -> float:
    return audio.seconds or (audio.tokens or 1) / AUDIO_TOKENS_PER_SECOND
