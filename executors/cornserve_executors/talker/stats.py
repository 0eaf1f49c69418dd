"""Prometheus metrics of a talker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve.observe.histogram import REAL_TIME_FACTORS, TOKENS
from cornserve_executors.engine_stats import EngineStats, counter, gauge, histogram


class TalkerStats(EngineStats, prefix="cornserve_talker"):
    """Counts of speeches and frames, and durations."""

    running_speeches = gauge("Speeches being generated.")
    waiting_speeches = gauge("Speeches waiting for a place in the batch.")
    speeches = counter("Speeches generated.")
    frames = counter("Steps, counted for each speech of a batch.")
    audio_seconds = counter("Seconds of generated speech.")
    batch_speeches = histogram("Speeches per step.", TOKENS)
    step_seconds = histogram("Seconds the device takes for a step of a batch.")
    first_audio_seconds = histogram("Seconds from the start of a speech to its first samples.")
    speech_seconds = histogram("Seconds from the start of a speech to its last samples.")
    real_time_factor = histogram(
        "Seconds from the start of a speech to its last samples, divided by its duration.", REAL_TIME_FACTORS
    )

    def set_items(self, *, running: int, waiting: int) -> None:
        self.running_speeches, self.waiting_speeches = running, waiting

    @contextmanager
    def step(self, speeches: int) -> Iterator[None]:
        """Measures a step of a batch, unless it fails."""
        with self.step_seconds.time():
            yield
        self.batch_speeches.observe(speeches)
        self.frames += speeches

    def record_speech(self, seconds: float, audio_seconds: float) -> None:
        """Records the time to generate a speech, and its duration."""
        self.speech_seconds.observe(seconds)
        self.speeches += 1
        self.audio_seconds += audio_seconds
        if audio_seconds:
            self.real_time_factor.observe(seconds / audio_seconds)
