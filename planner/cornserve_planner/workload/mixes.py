"""Three mixes of any-to-any requests, with dependent calls: chats, a voice assistant, and an image studio.

The sizes are assumptions, not measurements: log-normal around round means. Each request has a seed for its contents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cornserve_planner.errors import InvalidInputError, require_between
from cornserve_planner.requests.request import (
    WorkloadAudio,
    WorkloadImage,
    WorkloadRequest,
    WorkloadVideo,
)
from cornserve_planner.workload.added_modalities import LogNormal
from cornserve_planner.workload.interarrival import InterarrivalGaps, Rng

CLIENTS = 50
"""The clients of a mix. Each session belongs to one of them."""

TOKENS_PER_SPOKEN_SECOND = 3.0
"""Text tokens of a second of speech: about 150 words per minute."""

_IMAGE_SIZES: Final = ((1280, 720), (1024, 1024), (800, 600), (448, 448))
_DRAWN_SIZES: Final = ((1024, 1024), (768, 768), (512, 512))


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Draws sizes, scaled.

    Args:
        factor: that of tokens, pixels and seconds.
    """

    rng: Rng
    factor: float

    def tokens(self, mean: float) -> int:
        return max(1, round(self.factor * LogNormal(mean).draw(self.rng)))

    def seconds(self, mean: float) -> float:
        return round(max(0.1, self.factor * LogNormal(1000 * mean, 0.5).draw(self.rng) / 1000), 3)

    def image(self, sizes: tuple[tuple[int, int], ...]) -> WorkloadImage:
        width, height = sizes[int(self.rng.integers(len(sizes)))]
        side = math.sqrt(self.factor)
        return WorkloadImage(width=max(28, round(width * side)), height=max(28, round(height * side)))

    def happens(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a session.

    Args:
        pause: seconds between the end of the call before and this one.
        fields: those of the request, without arrival, id and dependencies.
    """

    pause: float
    fields: Mapping[str, object]


def _chats(sizes: _Sizes) -> Iterator[_Call]:
    """Chats of up to six turns, of which each has the history in its prompt. Four in ten begin with an image."""
    images = (sizes.image(_IMAGE_SIZES),) if sizes.happens(0.4) else ()
    history = 0
    for _ in range(6):
        text, output = history + sizes.tokens(120), sizes.tokens(180)
        yield _Call(sizes.seconds(8.0), {"text_tokens": text, "images": images, "output_tokens": output})
        history = text + output
        if not sizes.happens(0.55):
            return


def _assistant(sizes: _Sizes) -> Iterator[_Call]:
    """Questions in speech, answered in text and speech. Some show an image or a video."""
    for _ in range(4):
        output = sizes.tokens(60)
        fields: dict[str, object] = {
            "text_tokens": sizes.tokens(30),
            "audios": (WorkloadAudio(seconds=sizes.seconds(4.0)),),
            "output_modalities": ("text", "audio"),
            "output_tokens": output,
            "output_audio_seconds": round(output / TOKENS_PER_SPOKEN_SECOND, 3),
        }
        if sizes.happens(0.25):
            fields["images"] = (sizes.image(_IMAGE_SIZES),)
        elif sizes.happens(0.15):
            fields["videos"] = (WorkloadVideo(seconds=sizes.seconds(6.0), width=448, height=252),)
        yield _Call(sizes.seconds(5.0), fields)
        if not sizes.happens(0.5):
            return


def _studio(sizes: _Sizes) -> Iterator[_Call]:
    """An agent: a chat writes a prompt, an image is drawn from it, and perhaps changed or described in speech."""
    yield _Call(0.0, {"text_tokens": sizes.tokens(200), "output_tokens": sizes.tokens(80)})
    drawn = sizes.image(_DRAWN_SIZES)
    yield _Call(0.05, {"text_tokens": sizes.tokens(80), "output_modalities": ("image",), "output_images": (drawn,)})
    if sizes.happens(0.4):
        fields = {"text_tokens": sizes.tokens(30), "images": (drawn,)}
        yield _Call(sizes.seconds(10.0), {**fields, "output_modalities": ("image",), "output_images": (drawn,)})
    if sizes.happens(0.25):
        text = sizes.tokens(60)
        seconds = round(text / TOKENS_PER_SPOKEN_SECOND, 3)
        yield _Call(0.05, {"text_tokens": text, "output_modalities": ("audio",), "output_audio_seconds": seconds})


MIXES: Final[Mapping[str, tuple[Callable[[_Sizes], Iterator[_Call]], float]]] = {
    "chats": (_chats, 2.16),
    "assistant": (_assistant, 1.875),
    "studio": (_studio, 2.65),
}
"""The calls of a session and their mean number, by the name of the mix."""


def generate_mix(
    name: str, requests: int, *, rate: float, cv: float = 1.0, scale: float = 1.0, seed: int = 0
) -> list[WorkloadRequest]:
    """Returns requests in order of arrival. A call of a session waits for the end of the one before.

    Args:
        rate: requests per second, on average.
        cv: the coefficient of variation of the gaps between sessions: 1 for Poisson arrivals, above 1 for bursts.
        scale: a factor of tokens, pixels and seconds.

    Raises:
        InvalidInputError: the mix is unknown, or a number is out of range.
    """
    if name not in MIXES:
        raise InvalidInputError("mix", f"must be one of {', '.join(MIXES)}, not {name!r}")
    for argument, value in (("rate", rate), ("scale", scale)):
        require_between(argument, value, 1e-6, 1e6)
    calls_of, mean_calls = MIXES[name]
    rng = np.random.default_rng(seed)
    sizes = _Sizes(rng, scale)
    gaps = InterarrivalGaps() if cv == 1 else InterarrivalGaps("gamma", cv)
    found: list[WorkloadRequest] = []
    start = 0.0
    session = 0
    while len(found) < requests:
        arrival, previous = start, None
        for number, call in enumerate(calls_of(sizes)):
            pause = call.pause if previous is not None else 0.0
            arrival += pause
            id = f"{name}-{session}.{number}"
            found.append(
                WorkloadRequest.model_validate(
                    {
                        "arrival": round(arrival, 6),
                        "id": id,
                        "after": () if previous is None else (previous,),
                        "delay": pause,
                        "seed": int(rng.integers(2**31)),
                        "client": f"client-{session % CLIENTS}",
                        **call.fields,
                    }
                )
            )
            previous = id
        session += 1
        start += float(gaps.draw(1, rng)[0]) * mean_calls / rate
    return _first_calls(found, requests)


def _first_calls(found: list[WorkloadRequest], requests: int) -> list[WorkloadRequest]:
    """Returns the first requests by arrival. A call arrives no earlier than the one before, so that none is missing."""
    return sorted(found, key=lambda request: request.arrival)[:requests]
