"""Prometheus metrics of a vocoder in its own executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cornserve.observe.histogram import Histogram


class VocoderStats:
    """Counts of speeches and their seconds, and durations."""

    def __init__(self) -> None:
        self._running = 0
        self._speeches = 0
        self._audio_seconds = 0.0
        self._decode_seconds = Histogram()

    @contextmanager
    def speech(self) -> Iterator[None]:
        """Counts a running speech, and as decoded unless it fails."""
        self._running += 1
        try:
            yield
            self._speeches += 1
        finally:
            self._running -= 1

    @contextmanager
    def decode(self) -> Iterator[None]:
        """Measures the work of the device for codes, unless it fails."""
        started = time.perf_counter()
        yield
        self._decode_seconds.observe(time.perf_counter() - started)

    def record_audio(self, seconds: float) -> None:
        self._audio_seconds += seconds

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "cornserve_vocoder_running_speeches", "Speeches being decoded, or waiting for their codes.", self._running
        )
        yield CounterMetricFamily("cornserve_vocoder_speeches", "Speeches decoded.", self._speeches)
        yield CounterMetricFamily("cornserve_vocoder_audio_seconds", "Seconds of decoded speech.", self._audio_seconds)
        yield self._decode_seconds.family(
            "cornserve_vocoder_decode_seconds", "Seconds the device takes to decode a chunk of codes."
        )
