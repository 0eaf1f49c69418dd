"""Workloads of a model of an encoder and a language model, whose executors wait for set times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.harness.strategies.workloads import Paths, TypedWorkload, name_paths

MONOLITH = {"encoder": 0.06, "llm": 0.06}
"""Seconds per image and per request. Components that share an executor disturb each other."""
ENCODER = {"encoder": 0.04}
LLM = {"llm": 0.05}


@dataclass(frozen=True, slots=True)
class StageRequests:
    """Requests with images, and without."""

    images: int

    def source(self, name: str) -> str:
        return f"""\
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

monolith = StageTask(seconds={MONOLITH})
encoder, llm = StageTask(seconds={ENCODER}), StageTask(seconds={LLM})
paths = [Caption(llm=monolith), Caption(llm=llm, encoder=encoder), Caption(llm=monolith, encoder=encoder)]
app = App({name!r}, paths, probes=[CaptionRequest(), CaptionRequest(images={self.images})])
"""

    @property
    def strategies(self) -> dict[str, Paths]:
        return name_paths("encoder", "llm")

    @property
    def components(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("encoder", "llm"), ("llm",)

    def draw(self, random: Random, is_first: bool) -> Mapping[str, Any]:
        return {"text": "a", **({"images": self.images} if is_first else {})}


STAGE_WORKLOADS = (
    TypedWorkload("encoder-heavy", StageRequests(images=3), share=0.9),
    TypedWorkload("balanced", StageRequests(images=2), share=0.6),
    TypedWorkload("text-heavy", StageRequests(images=1), share=0.1),
)
