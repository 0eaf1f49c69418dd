"""Video, audio and audio output for requests that were recorded without.

ServeGen published only its image clients. [C §7.2, footnote 6] makes an any-to-any workload of them: every request has
an image, video and audio come to half of them each, and a fifth asks for audio. The distributions of video and audio
that the authors read off ServeGen's figures are not printed; [C §2.2, footnote 2] gives averages: 10,000 video and 200
audio tokens. Around those, sizes are drawn log-normally, with a spread that is an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.workload.interarrival import Rng
from cornserve_planner.workload.request import WorkloadAudio, WorkloadImage, WorkloadRequest, WorkloadVideo


@dataclass(frozen=True, slots=True)
class LogNormal:
    mean: float
    cv: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and self.mean >= 1):
            raise InvalidInputError("mean", f"must be at least 1, not {self.mean}")
        if not (math.isfinite(self.cv) and self.cv >= 0):
            raise InvalidInputError("cv", f"must be at least 0, not {self.cv}")

    def draw(self, rng: Rng) -> int:
        variance = math.log1p(self.cv**2)
        drawn = float(rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance)))
        return max(1, round(drawn))


@dataclass(frozen=True, slots=True)
class AddedModalities:
    """Probabilities, independent of each other, and sizes."""

    video: float = 0.5
    audio: float = 0.5
    audio_output: float = 0.2
    video_tokens: LogNormal = LogNormal(10_000)
    audio_tokens: LogNormal = LogNormal(200)
    image_tokens: LogNormal = LogNormal(600)
    """Of the image that a request without one is given."""

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
