"""Service-level objectives of requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import Self

from cornserve.bench.statistics import RequestSample

_TERM = re.compile(r"(ttft|ttfa|tbt|tpot|e2e)=([0-9]*\.?[0-9]+)(ms|s)")

FORM = "some of ttft=200ms,ttfa=400ms,tbt=100ms,tpot=50ms,e2e=2s"


@dataclass(frozen=True, slots=True)
class Slo:
    """Upper bounds, in seconds."""

    ttft: float | None = None
    ttfa: float | None = None
    """The bound of the time to the first audio."""
    tbt: float | None = None
    """The bound of each gap between two chunks."""
    tpot: float | None = None
    e2e: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses an SLO. Raises `ValueError` if it is invalid."""
        bounds: dict[str, float] = {}
        for term in text.split(","):
            match = _TERM.fullmatch(term.strip())
            if match is None or match[1] in bounds:
                raise ValueError(f"invalid SLO {text!r}: expected {FORM}")
            bounds[match[1]] = float(match[2]) / (1000 if match[3] == "ms" else 1)
            if not 0 < bounds[match[1]] < inf:
                raise ValueError(f"invalid SLO {text!r}: {term.strip()} must be a positive, finite time")
        return cls(**bounds)

    @property
    def needs_stream(self) -> bool:
        return any(bound is not None for bound in (self.ttft, self.ttfa, self.tbt, self.tpot))

    def is_met(self, sample: RequestSample) -> bool:
        gaps = max(sample.gaps, default=None)
        measured = (
            (self.ttft, sample.ttft),
            (self.ttfa, sample.ttfa),
            (self.tbt, gaps),
            (self.tpot, sample.tpot),
            (self.e2e, sample.latency),
        )
        return all(bound is None or value is None or value <= bound for bound, value in measured)
