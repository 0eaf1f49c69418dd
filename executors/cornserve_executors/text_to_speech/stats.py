"""Prometheus metrics of a text-to-speech executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cornserve.observe.histogram import REAL_TIME_FACTORS, Histogram


class TextToSpeechStats:
    """Counts of requests and sentences, and durations."""

    def __init__(self) -> None:
        self._running = 0
        self._sentences = 0
        self._characters = 0
        self._audio_seconds = 0.0
        self._first_audio_seconds = Histogram()
        self._sentence_seconds = Histogram()
        self._real_time_factors = Histogram(REAL_TIME_FACTORS)

    @contextmanager
    def request(self, characters: int) -> Iterator[None]:
        self._running += 1
        self._characters += characters
        try:
            yield
        finally:
            self._running -= 1

    def record_first_audio(self, started: float) -> None:
        """Measures the time since the start of a request, a value of `time.perf_counter`."""
        self._first_audio_seconds.observe(time.perf_counter() - started)

    def record_sentence(self, seconds: float, audio_seconds: float) -> None:
        """Records the duration of the work on the device, and that of the speech."""
        self._sentences += 1
        self._audio_seconds += audio_seconds
        self._sentence_seconds.observe(seconds)
        self._real_time_factors.observe(seconds / audio_seconds)

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("cornserve_text_to_speech_running_requests", "Texts being spoken.", self._running)
        yield CounterMetricFamily("cornserve_text_to_speech_sentences", "Sentences spoken.", self._sentences)
        yield CounterMetricFamily("cornserve_text_to_speech_characters", "Characters received.", self._characters)
        yield CounterMetricFamily(
            "cornserve_text_to_speech_audio_seconds", "Seconds of generated speech.", self._audio_seconds
        )
        histograms = {
            "first_audio_seconds": ("Seconds from the request to its first audio.", self._first_audio_seconds),
            "sentence_seconds": ("Seconds the device takes for a sentence.", self._sentence_seconds),
            "real_time_factor": (
                "Seconds the device takes for a sentence, divided by those of its speech.",
                self._real_time_factors,
            ),
        }
        for name, (help, values) in histograms.items():
            yield values.family(f"cornserve_text_to_speech_{name}", help)
