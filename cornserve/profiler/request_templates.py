"""Templates of requests: fixed ones, and chats of a workload with new contents each time."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from random import Random
from typing import Any, Protocol

from pydantic_core import to_json

from cornserve.bench.requests import WORDS
from cornserve_planner.workload.request import WorkloadRequest
from cornserve_planner.workload.request_files import read_requests

MAX_TEMPLATES = 500
"""The maximum number of requests that are kept. Longer workloads are sampled at even intervals."""

PIXELS_PER_TOKEN = 28
"""The side of the square of pixels of one image token, for images whose pixels are unknown."""


class WorkloadRefusedError(Exception):
    """Requests of a workload cannot be generated. The message is for users."""


class RequestTemplate(Protocol):
    @property
    def key(self) -> bytes:
        """A text that is equal for equal templates only."""
        ...

    def make(self, random: Random) -> bytes:
        """Returns a request as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class FixedRequest:
    """The same request each time. Caches of the executors may serve it."""

    key: bytes

    def make(self, random: Random) -> bytes:
        return self.key


@dataclass(frozen=True, slots=True)
class GeneratedChat:
    """Chats of random words and random images, which no cache contains.

    Args:
        words: words of about one token each.
        images: width and height of each image in pixels.
        output_tokens: tokens of the response; 0 for the default of the app.
    """

    words: int
    images: tuple[tuple[int, int], ...]
    output_tokens: int

    @property
    def key(self) -> bytes:
        return repr(self).encode()

    def make(self, random: Random) -> bytes:
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": _image_url(width, height, random)}}
            for width, height in self.images
        ]
        parts.append({"type": "text", "text": " ".join(random.choices(WORDS, k=max(1, self.words)))})
        limit = {"max_tokens": self.output_tokens, "ignore_eos": True} if self.output_tokens else {}
        return to_json({"messages": [{"role": "user", "content": parts}], **limit})


def workload_chats(path: Path) -> list[GeneratedChat]:
    """Returns templates of the chats of a planner's file of requests.

    Raises `WorkloadRefusedError` for other inputs and outputs than texts and images to look at, and the planner's
    `InvalidInputError`.
    """
    requests = list(read_requests(path))
    return [_chat(request, path) for request in _evenly_spaced(requests)]


def _evenly_spaced(requests: Sequence[WorkloadRequest]) -> Sequence[WorkloadRequest]:
    return requests[:: ceil(len(requests) / MAX_TEMPLATES)] if requests else requests


def _chat(request: WorkloadRequest, path: Path) -> GeneratedChat:
    for medium, found in (
        ("videos", request.videos),
        ("audios", request.audios),
        ("output_images", request.output_images),
        ("output_audio_seconds", request.output_audio_seconds),
    ):
        if found:
            raise WorkloadRefusedError(
                f"{path}: the request at {request.arrival:g} s has {medium}, which cannot be generated: give requests "
                "of the app with --requests"
            )
    sizes = []
    for image in request.images:
        side = PIXELS_PER_TOKEN * max(1, round(sqrt(image.tokens or 1)))
        sizes.append((image.width or side, image.height or side))
    return GeneratedChat(request.text_tokens, tuple(sizes), request.output_tokens)


def _image_url(width: int, height: int, random: Random) -> str:
    """Returns a `data:` URL of a PNG image whose rows have random colors."""
    rows = b"".join(b"\0" + random.randbytes(3) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{b64encode(png).decode()}"
