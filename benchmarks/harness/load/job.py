"""What a load generator is told, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Target = Literal["gateway", "executor"]

WORDS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight",
    "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen",
)  # fmt: skip
ANSWER = " ".join(WORDS)
"""What every request is answered with."""


@dataclass(frozen=True, slots=True)
class Job:
    target: Target
    address: str
    stream: bool
    concurrency: int
    seconds: float
    """How long is measured, after a warm-up."""
    model: str = ""
    """For the gateway."""
    processes: tuple[tuple[str, int], ...] = ()
    """Whose CPU time is taken: (name, process id)."""


@dataclass(frozen=True, slots=True)
class Result:
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    """Until the first byte of the answer's body, or the first event of the call."""
    cpu_us: dict[str, float]
    """Per request, by process; the generator's own as "load"."""
    others: float
    """Cores that processes which are none of ours were using meanwhile."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def busy(self, process: str) -> float:
        """The part of one core that the process used."""
        return self.cpu_us[process] * self.rate / 1e6
