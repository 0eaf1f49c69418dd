"""Prometheus metrics of an encoder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cornserve.observe.histogram import TOKENS, Histogram

_COUNTERS = {
    "images": "Images encoded.",
    "cache_hits": "Images not encoded because their embeddings were still in shared memory.",
    "deduplicated": "Images not encoded because the same image was being encoded.",
    "embeddings": "Embeddings produced. Each replaces one token of a prompt.",
}
_HISTOGRAMS = {
    "batch_images": "Images per batch.",
    "batch_requests": "Requests per batch.",
    "batch_patches": "Patches per batch.",
}


class EncoderStats:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._pending = 0
        self._sizes = {name: Histogram(TOKENS) for name in _HISTOGRAMS}
        self._batch_seconds = Histogram()
        self._preprocessing_seconds = Histogram()

    def count_cache_hit(self) -> None:
        self._counts["cache_hits"] += 1

    def count_deduplicated(self) -> None:
        self._counts["deduplicated"] += 1

    def count_encoded(self, rows: int) -> None:
        self._counts["images"] += 1
        self._counts["embeddings"] += rows

    @contextmanager
    def pending(self) -> Iterator[None]:
        """Counts an image as pending until the block ends."""
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1

    @contextmanager
    def preprocessing(self) -> Iterator[None]:
        """Measures the preprocessing of an image."""
        started = time.perf_counter()
        yield
        self._preprocessing_seconds.observe(time.perf_counter() - started)

    @contextmanager
    def batch(self, request_ids: Sequence[str], patches: int) -> Iterator[None]:
        """Measures a batch.

        Args:
            request_ids: the request of each image.
        """
        started = time.perf_counter()
        yield
        self._batch_seconds.observe(time.perf_counter() - started)
        self._sizes["batch_images"].observe(len(request_ids))
        self._sizes["batch_requests"].observe(len(set(request_ids)))
        self._sizes["batch_patches"].observe(patches)

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "cornserve_encoder_pending_images", "Images waiting or being encoded.", value=self._pending
        )
        for name, help in _COUNTERS.items():
            yield CounterMetricFamily(f"cornserve_encoder_{name}", help, value=self._counts[name])
        for name, help in _HISTOGRAMS.items():
            yield _histogram(name, help, self._sizes[name])
        yield _histogram("batch_seconds", "Seconds the device takes for a batch.", self._batch_seconds)
        yield _histogram(
            "preprocessing_seconds",
            "Seconds to decode and preprocess an image, including the wait for a thread.",
            self._preprocessing_seconds,
        )


def _histogram(name: str, help: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(f"cornserve_encoder_{name}", help)
    histogram.add_to(family)
    return family
