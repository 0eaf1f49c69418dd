"""Prometheus metrics of an executor of a whole Omni model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cornserve.observe.histogram import Histogram


class OmniStats:
    """Counts of requests, tokens and seconds of speech, and durations."""

    def __init__(self) -> None:
        self._requests = 0
        self._tokens = 0
        self._audio_seconds = 0.0
        self._request_seconds = Histogram()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Measures a request from its arrival, unless it fails."""
        started = time.perf_counter()
        self._requests += 1
        try:
            yield
            self._request_seconds.observe(time.perf_counter() - started)
        finally:
            self._requests -= 1

    def record_response(self, tokens: int, audio_seconds: float) -> None:
        self._tokens += tokens
        self._audio_seconds += audio_seconds

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("cornserve_omni_requests", "Requests running and waiting.", self._requests)
        yield CounterMetricFamily("cornserve_omni_tokens", "Tokens generated.", self._tokens)
        yield CounterMetricFamily("cornserve_omni_audio_seconds", "Seconds of generated speech.", self._audio_seconds)
        yield self._request_seconds.family(
            "cornserve_omni_request_seconds", "Seconds from the arrival of a request to its response."
        )
