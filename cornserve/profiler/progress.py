"""Shows what is measured, and about how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cornserve.durations import describe_duration, describe_estimate
from cornserve.profiler.remaining_time import RemainingTime

Report = Callable[[str, str], object]
"""Shows the current step, such as `llm with llm`, and how far it is, such as ` (4 requests in 2 s), about …`."""


@dataclass(slots=True)
class ProfilingProgress:
    remaining: RemainingTime
    report: Report
    _step_began: float = field(default_factory=time.monotonic)

    def show(self, step: str, details: str = "") -> None:
        """
        Args:
            step: the current step, for users.
        """
        elapsed = time.monotonic() - self._step_began
        about = describe_estimate(self.remaining.seconds(elapsed))
        most = describe_duration(self.remaining.limit(elapsed))
        self.report(step, f"{details}, about {about} left, at most {most}")

    @property
    def load_limit(self) -> float:
        """The seconds that are left for the loads that are the current step."""
        return max(0.0, self.remaining.load_limit - (time.monotonic() - self._step_began))

    def end_step(self) -> None:
        """Begins the next step."""
        now = time.monotonic()
        self.remaining.end_step(now - self._step_began)
        self._step_began = now
