"""Workloads with requests of one size in a Poisson process [C §7.3.2]."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from cornserve_planner.errors import require_non_negative, require_positive
from cornserve_planner.requests.request import WorkloadImage, WorkloadRequest
from cornserve_planner.workload.interarrival import InterarrivalGaps, draw_arrivals
from cornserve_planner.workload.rate_curve import RateCurve


@dataclass(frozen=True, slots=True)
class ControlledWorkload:
    images: float
    """Expected number per request: 0.6 means one image in 60 % of the requests."""
    text_tokens: int
    output_tokens: int
    image: WorkloadImage = field(default_factory=lambda: WorkloadImage(width=1920, height=1080))

    def __post_init__(self) -> None:
        require_non_negative("images", self.images)

    def generate(
        self, rate: float | RateCurve, seconds: float, *, gaps: InterarrivalGaps | None = None, seed: int = 0
    ) -> list[WorkloadRequest]:
        """
        Args:
            rate: requests per second. A curve is repeated after its end.
            gaps: distribution of inter-arrival times; None for a Poisson process.
        """
        require_positive("seconds", seconds)
        rng = np.random.default_rng(seed)
        curve = RateCurve(seconds, (rate,)) if isinstance(rate, (int, float)) else rate
        steps = math.ceil(seconds / curve.step)
        whole = RateCurve(curve.step, tuple(curve.rates[index % len(curve.rates)] for index in range(steps)))
        times = draw_arrivals(whole, gaps or InterarrivalGaps(), rng)
        times = times[: np.searchsorted(times, seconds)]
        surely, chance = int(self.images), self.images - int(self.images)
        more = rng.random(len(times)) < chance
        return [
            WorkloadRequest(
                arrival=arrival,
                text_tokens=self.text_tokens,
                images=(self.image,) * (surely + int(one_more)),
                output_tokens=self.output_tokens,
            )
            for arrival, one_more in zip(times.tolist(), more.tolist(), strict=True)
        ]


CORNSERVE_TABLE_3 = {
    "lower resolution": ControlledWorkload(1.0, 1000, 300, WorkloadImage(width=1680, height=1050)),
    "standard": ControlledWorkload(1.0, 1000, 300),
    "less text": ControlledWorkload(1.0, 100, 100),
    "fewer images": ControlledWorkload(0.6, 100, 100),
}
"""The workloads of [C Table 3]."""
