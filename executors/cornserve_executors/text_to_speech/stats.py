"""Prometheus metrics of a text-to-speech executor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve.observe.histogram import REAL_TIME_FACTORS
from cornserve_executors.engine_stats import EngineStats, counter, gauge, histogram


class TextToSpeechStats(EngineStats, prefix="cornserve_text_to_speech"):
    """Counts of requests and sentences, and durations."""

    running_requests = gauge("Texts being spoken.")
    sentences = counter("Sentences spoken.")
    characters = counter("Characters received.")
    audio_seconds = counter("Seconds of generated speech.")
    first_audio_seconds = histogram("Seconds from the request to its first audio.")
    sentence_seconds = histogram("Seconds the device takes for a sentence.")
    real_time_factor = histogram(
        "Seconds the device takes for a sentence, divided by those of its speech.", REAL_TIME_FACTORS
    )

    @contextmanager
    def request(self, characters: int) -> Iterator[None]:
        self.characters += characters
        with self.counted("running_requests"):
            yield

    def record_sentence(self, seconds: float, audio_seconds: float) -> None:
        """Records the duration of the work on the device, and that of the speech."""
        self.sentences += 1
        self.audio_seconds += audio_seconds
        self.sentence_seconds.observe(seconds)
        self.real_time_factor.observe(seconds / audio_seconds)
