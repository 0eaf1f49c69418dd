"""The encoder's own figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cornserve.observe.histogram import TOKENS, Histogram

_COUNTERS = {
    "images": "Images that were encoded.",
    "cache_hits": "Images that had not to be encoded: their embeddings were still there.",
    "deduplicated": "Images that had not to be encoded: the same image was being encoded already.",
    "embeddings": "Embeddings that were made, each for one of a prompt's tokens.",
}
_HISTOGRAMS = {
    "batch_images": "Images of a batch.",
    "batch_requests": "Requests whose images were in a batch.",
    "batch_patches": "Patches of a batch.",
}


class EncoderStats:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._waiting = 0
        self._sizes = {name: Histogram(TOKENS) for name in _HISTOGRAMS}
        self._batch_seconds = Histogram()
        self._preprocessing_seconds = Histogram()

    def cache_hit(self) -> None:
        self._counts["cache_hits"] += 1

    def shared(self) -> None:
        self._counts["deduplicated"] += 1

    def encoded(self, rows: int) -> None:
        self._counts["images"] += 1
        self._counts["embeddings"] += rows

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """An image, from its place in the queue to its embeddings."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    @contextmanager
    def preparing(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._preprocessing_seconds.observe(time.perf_counter() - started)

    @contextmanager
    def batch(self, request_ids: Sequence[str], patches: int) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._batch_seconds.observe(time.perf_counter() - started)
        self._sizes["batch_images"].observe(len(request_ids))
        self._sizes["batch_requests"].observe(len(set(request_ids)))
        self._sizes["batch_patches"].observe(patches)

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "cornserve_encoder_pending_images", "Images that wait to be encoded, or are.", value=self._waiting
        )
        for name, meaning in _COUNTERS.items():
            yield CounterMetricFamily(f"cornserve_encoder_{name}", meaning, value=self._counts[name])
        for name, meaning in _HISTOGRAMS.items():
            yield _histogram(name, meaning, self._sizes[name])
        yield _histogram("batch_seconds", "How long the device worked on a batch.", self._batch_seconds)
        yield _histogram(
            "preprocessing_seconds", "How long decoding and preprocessing an image took.", self._preprocessing_seconds
        )


def _histogram(name: str, meaning: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(f"cornserve_encoder_{name}", meaning)
    histogram.add_to(family)
    return family
