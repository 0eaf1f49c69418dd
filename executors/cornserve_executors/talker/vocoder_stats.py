"""Prometheus metrics of a vocoder in its own executor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve_executors.engine_stats import EngineStats, counter, gauge, histogram


class VocoderStats(EngineStats, prefix="cornserve_vocoder"):
    """Counts of speeches and their seconds, and durations."""

    running_speeches = gauge("Speeches being decoded, or waiting for their codes.")
    speeches = counter("Speeches decoded.")
    audio_seconds = counter("Seconds of decoded speech.")
    decode_seconds = histogram("Seconds the device takes to decode a chunk of codes.")

    @contextmanager
    def speech(self) -> Iterator[None]:
        """Counts a running speech, and as decoded unless it fails."""
        with self.counted("running_speeches"):
            yield
            self.speeches += 1
