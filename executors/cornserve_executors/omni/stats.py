"""Prometheus metrics of an executor of a whole Omni model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve_executors.engine_stats import EngineStats, counter, gauge, histogram


class OmniStats(EngineStats, prefix="cornserve_omni"):
    """Counts of requests, tokens and seconds of speech, and durations."""

    requests = gauge("Requests running and waiting.")
    tokens = counter("Tokens generated.")
    audio_seconds = counter("Seconds of generated speech.")
    request_seconds = histogram("Seconds from the arrival of a request to its response.")

    @contextmanager
    def request(self) -> Iterator[None]:
        """Measures a request from its arrival, unless it fails."""
        with self.counted("requests"), self.request_seconds.time():
            yield
