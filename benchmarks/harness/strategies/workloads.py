"""Workloads of a model of an encoder and a language model, whose executors wait for set times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

MONOLITH = {"encoder": 0.06, "llm": 0.06}
"""Seconds per image and per request. Components that share an executor disturb each other."""
ENCODER = {"encoder": 0.04}
LLM = {"llm": 0.05}

STRATEGIES: dict[str, list[tuple[str, ...]]] = {
    "monolith": [("encoder+llm",)],
    "separate": [("encoder", "llm")],
    "hybrid": [("encoder", "encoder+llm"), ("encoder+llm",)],
    "planner": [("encoder+llm",), ("encoder", "llm"), ("encoder", "encoder+llm")],
}
"""Paths of each strategy, as lists of options."""


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
    def app(self) -> str:
        """The source of the app, which is named after the workload."""
        return f"""\
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

monolith = StageTask(seconds={MONOLITH})
encoder, llm = StageTask(seconds={ENCODER}), StageTask(seconds={LLM})
paths = [Caption(llm=monolith), Caption(llm=llm, encoder=encoder), Caption(llm=monolith, encoder=encoder)]
app = App({self.name!r}, paths, probes=[CaptionRequest(), CaptionRequest(images={self.images})])
"""

    @property
    def requests(self) -> str:
        """Twenty requests with the shares of the workload in random order, as JSON lines."""
        requests = [self._request(number < round(20 * self.share)) for number in range(20)]
        Random(0).shuffle(requests)
        return "".join(request + "\n" for request in requests)

    @property
    def document(self) -> str:
        """The workload for the planner."""
        types = {
            "image": {"components": ["encoder", "llm"], "share": self.share},
            "text": {"components": ["llm"], "share": round(1 - self.share, 6)},
        }
        return json.dumps({"format": "cornserve-planner/workload", "version": 1, "types": types})

    def draws(self, seed: int) -> Iterator[bytes]:
        """Yields random requests without end."""
        random = Random(seed)
        while True:
            yield self._request(random.random() < self.share).encode()

    def _request(self, has_images: bool) -> str:
        return json.dumps({"text": "a", **({"images": self.images} if has_images else {})})


WORKLOADS = (
    StageWorkload("encoder-heavy", share=0.9, images=3),
    StageWorkload("balanced", share=0.6, images=2),
    StageWorkload("text-heavy", share=0.1, images=1),
)
