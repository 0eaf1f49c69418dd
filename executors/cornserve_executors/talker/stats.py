"""Prometheus metrics of a talker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cornserve.observe.histogram import REAL_TIME_FACTORS, TOKENS, Histogram


class TalkerStats:
    """Counts of speeches and frames, and durations."""

    def __init__(self) -> None:
        self._running = 0
        self._waiting = 0
        self._speeches = 0
        self._frames = 0
        self._audio_seconds = 0.0
        self._batch_speeches = Histogram(TOKENS)
        self._step_seconds = Histogram()
        self._first_audio_seconds = Histogram()
        self._speech_seconds = Histogram()
        self._real_time_factors = Histogram(REAL_TIME_FACTORS)

    def set_items(self, *, running: int, waiting: int) -> None:
        self._running, self._waiting = running, waiting

    @contextmanager
    def step(self, speeches: int) -> Iterator[None]:
        """Measures a step of a batch, unless it fails."""
        started = time.perf_counter()
        yield
        self._step_seconds.observe(time.perf_counter() - started)
        self._batch_speeches.observe(speeches)
        self._frames += speeches

    def record_first_audio(self, seconds: float) -> None:
        self._first_audio_seconds.observe(seconds)

    def record_speech(self, seconds: float, audio_seconds: float) -> None:
        """Records the time to generate a speech, and its duration."""
        self._speech_seconds.observe(seconds)
        self._speeches += 1
        self._audio_seconds += audio_seconds
        if audio_seconds:
            self._real_time_factors.observe(seconds / audio_seconds)

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("cornserve_talker_running_speeches", "Speeches being generated.", self._running)
        yield GaugeMetricFamily(
            "cornserve_talker_waiting_speeches", "Speeches waiting for a place in the batch.", self._waiting
        )
        yield CounterMetricFamily("cornserve_talker_speeches", "Speeches generated.", self._speeches)
        yield CounterMetricFamily("cornserve_talker_frames", "Steps, counted for each speech of a batch.", self._frames)
        yield CounterMetricFamily("cornserve_talker_audio_seconds", "Seconds of generated speech.", self._audio_seconds)
        histograms = {
            "batch_speeches": ("Speeches per step.", self._batch_speeches),
            "step_seconds": ("Seconds the device takes for a step of a batch.", self._step_seconds),
            "first_audio_seconds": (
                "Seconds from the start of a speech to its first samples.",
                self._first_audio_seconds,
            ),
            "speech_seconds": ("Seconds from the start of a speech to its last samples.", self._speech_seconds),
            "real_time_factor": (
                "Seconds from the start of a speech to its last samples, divided by its duration.",
                self._real_time_factors,
            ),
        }
        for name, (help, values) in histograms.items():
            yield values.family(f"cornserve_talker_{name}", help)
