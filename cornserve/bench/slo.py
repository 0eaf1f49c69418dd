"""What a request must keep to count as good."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import Self

from cornserve.bench.samples import Sample

_TERM = re.compile(r"(ttft|tbt|tpot|e2e)=([0-9]*\.?[0-9]+)(ms|s)")

FORM = "ttft=200ms,tbt=100ms,tpot=50ms,e2e=2s, or some of these"


@dataclass(frozen=True, slots=True)
class Slo:
    """Upper bounds, in seconds."""

    ttft: float | None = None
    tbt: float | None = None
    """Of every gap between two pieces."""
    tpot: float | None = None
    e2e: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ValueError`."""
        bounds: dict[str, float] = {}
        for term in text.split(","):
            match = _TERM.fullmatch(term.strip())
            if match is None or match[1] in bounds:
                raise ValueError(f"{text!r} is no SLO: {FORM}")
            bounds[match[1]] = float(match[2]) / (1000 if match[3] == "ms" else 1)
            if not 0 < bounds[match[1]] < inf:
                raise ValueError(f"{text!r} is no SLO: {term.strip()} is no time above 0")
        return cls(**bounds)

    @property
    def needs_stream(self) -> bool:
        return any(bound is not None for bound in (self.ttft, self.tbt, self.tpot))

    def is_met(self, sample: Sample) -> bool:
        gaps = max(sample.gaps, default=None)
        seen = ((self.ttft, sample.ttft), (self.tbt, gaps), (self.tpot, sample.tpot), (self.e2e, sample.latency))
        return all(bound is None or value is None or value <= bound for bound, value in seen)
