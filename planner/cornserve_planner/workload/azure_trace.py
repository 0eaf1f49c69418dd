"""The arrivals in a production cluster per minute for one week, as the shape of a workload's rate."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

from pydantic import Field

from cornserve_planner.files.document import Document
from cornserve_planner.workload.rate_curve import RateCurve


class ArrivalCounts(Document):
    """`format: cornserve-planner/arrivals`."""

    kind = "arrivals"

    source: str
    licence: str
    start: str
    """Start time of the first step."""
    step_seconds: Annotated[float, Field(gt=0)]
    counts: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    """Arrivals in each step."""

    @property
    def curve(self) -> RateCurve:
        return RateCurve(self.step_seconds, tuple(count / self.step_seconds for count in self.counts))


def azure_lmm_2024() -> ArrivalCounts:
    """Returns the arrivals of a million multimodal requests in 7 days from 15 October 2024, 12:00 UTC.

    The published aggregate contains neither images nor tokens.
    """
    path = files("cornserve_planner.workload") / "data/azure-lmm-2024.json"
    return ArrivalCounts.parse(path.read_text(), path.name)
