"""Workloads of a model of an encoder and a language model, whose executors wait for set times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.strategies.workloads import Paths, draw_block, draw_types, name_paths

MONOLITH = {"encoder": 0.06, "llm": 0.06}
"""Seconds per image and per request. Components that share an executor disturb each other."""
ENCODER = {"encoder": 0.04}
LLM = {"llm": 0.05}


@dataclass(frozen=True, slots=True)
class StageWorkload:
    """
    Args:
        share: share of the requests that have images.
        images: images of these requests.
    """

    name: str
    share: float
    images: int

    @property
    def strategies(self) -> dict[str, Paths]:
        return name_paths("encoder", "llm")

    def write_app(self, directory: Path) -> Path:
        path = directory / f"{self.name}.py"
        path.write_text(self._source)
        return path

    def profile_arguments(self, directory: Path) -> tuple[str, ...]:
        requests = map(self._request, draw_block(self.share))
        path = directory / f"{self.name}.jsonl"
        path.write_text("".join(request + "\n" for request in requests))
        return "--requests", str(path)

    def write_shares(self, directory: Path) -> Path:
        types = {
            "image": {"components": ["encoder", "llm"], "share": self.share},
            "text": {"components": ["llm"], "share": round(1 - self.share, 6)},
        }
        path = directory / f"{self.name}.workload.json"
        path.write_text(json.dumps({"format": "cornserve-planner/workload", "version": 1, "types": types}))
        return path

    def draw_requests(self, seed: int) -> Iterator[bytes]:
        return (self._request(has_images).encode() for has_images in draw_types(self.share, seed))

    @property
    def _source(self) -> str:
        """The source of the app, which is named after the workload."""
        return f"""\
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

monolith = StageTask(seconds={MONOLITH})
encoder, llm = StageTask(seconds={ENCODER}), StageTask(seconds={LLM})
paths = [Caption(llm=monolith), Caption(llm=llm, encoder=encoder), Caption(llm=monolith, encoder=encoder)]
app = App({self.name!r}, paths, probes=[CaptionRequest(), CaptionRequest(images={self.images})])
"""

    def _request(self, has_images: bool) -> str:
        return json.dumps({"text": "a", **({"images": self.images} if has_images else {})})


STAGE_WORKLOADS = (
    StageWorkload("encoder-heavy", share=0.9, images=3),
    StageWorkload("balanced", share=0.6, images=2),
    StageWorkload("text-heavy", share=0.1, images=1),
)
