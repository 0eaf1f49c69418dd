"""Adds video, audio and audio output to requests that were recorded without them.

ServeGen published only its image clients. [C §7.2, footnote 6] makes an any-to-any workload from them: every request
has an image, half of the requests have a video, half have audio, and a fifth request audio output. The paper does not
print the distributions of video and audio sizes, which its authors read from ServeGen's figures. It gives averages:
10,000 video tokens and 200 audio tokens [C §2.2, footnote 2]. Sizes are drawn log-normally around these averages, with
an assumed spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from cornserve_planner.errors import InvalidInputError, require_non_negative
from cornserve_planner.requests.request import WorkloadAudio, WorkloadImage, WorkloadRequest, WorkloadVideo
from cornserve_planner.workload.interarrival import Rng


@dataclass(frozen=True, slots=True)
class LogNormal:
    mean: float
    cv: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and self.mean >= 1):
            raise InvalidInputError("mean", f"must be at least 1, not {self.mean}")
        require_non_negative("cv", self.cv)

    def draw(self, rng: Rng) -> int:
        variance = math.log1p(self.cv**2)
        drawn = float(rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance)))
        return max(1, round(drawn))


@dataclass(frozen=True, slots=True)
class AddedModalities:
    """Independent probabilities of the added modalities, and their sizes."""

    video: float = 0.5
    audio: float = 0.5
    audio_output: float = 0.2
    video_tokens: LogNormal = LogNormal(10_000)
    audio_tokens: LogNormal = LogNormal(200)
    image_tokens: LogNormal = LogNormal(600)
    """Tokens of the image that is added to a request without images."""

    def __post_init__(self) -> None:
        for name in ("video", "audio", "audio_output"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInputError(name, f"must be a probability, not {getattr(self, name)}")


def add_modalities(
    requests: Iterable[WorkloadRequest], added: AddedModalities, *, seed: int = 0
) -> Iterator[WorkloadRequest]:
    rng = np.random.default_rng(seed)
    for request in requests:
        has_video, has_audio, speaks = rng.random(3) < (added.video, added.audio, added.audio_output)
        yield request.model_copy(
            update={
                "images": request.images or (WorkloadImage(tokens=added.image_tokens.draw(rng)),),
                "videos": (WorkloadVideo(tokens=added.video_tokens.draw(rng)),) if has_video else (),
                "audios": (WorkloadAudio(tokens=added.audio_tokens.draw(rng)),) if has_audio else (),
                "output_modalities": ("text", "audio") if speaks else ("text",),
            }
        )
