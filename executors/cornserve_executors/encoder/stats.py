"""Prometheus metrics of an encoder."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cornserve.observe.histogram import TOKENS, Histogram
from cornserve_tasklib.media import Modality

_GAUGES = {
    "pending_items": "Media waiting or being encoded.",
    "decoding_items": "Media being decoded, or waiting for a thread to decode them.",
}
_COUNTERS = {
    "items": "Media encoded.",
    "embeddings": "Embeddings produced. Each replaces one token of a prompt.",
    "cache_hits": "Media not encoded because their embeddings were still in shared memory.",
    "deduplicated": "Media not encoded because the same medium was being encoded.",
}
_HISTOGRAMS = {
    "decode_seconds": "Seconds to decode and preprocess a medium, including the wait for a thread.",
    "encode_seconds": "Seconds from the end of preprocessing to the embeddings, including the wait for the device.",
    "batch_items": "Media, or parts of long media, of one modality per batch that has any.",
    "batch_patches": "Patches of one modality per batch that has any.",
}


@dataclass(frozen=True, slots=True)
class EncodingWork:
    """The work of encoding a medium, or a part of it."""

    request_id: str
    modality: Modality
    patches: int
    """See `ProcessedMedium.patches`."""
    is_part: bool = False
    """Whether the medium is encoded in parts, because it is long."""


@dataclass(slots=True)
class _ModalityStats:
    gauges: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {
            name: Histogram(TOKENS) if name.startswith("batch_") else Histogram() for name in _HISTOGRAMS
        }
    )


class EncoderStats:
    """Counts and durations by modality, and the batches, which may mix modalities.

    Args:
        modalities: modalities whose metrics exist before the first medium.
    """

    def __init__(self, *modalities: Modality) -> None:
        self._modalities = defaultdict[Modality, _ModalityStats](
            _ModalityStats, {modality: _ModalityStats() for modality in modalities}
        )
        self._batch_requests = Histogram(TOKENS)
        self._batch_seconds = Histogram()

    def count_cache_hit(self, modality: Modality) -> None:
        self._modalities[modality].counts["cache_hits"] += 1

    def count_deduplicated(self, modality: Modality) -> None:
        self._modalities[modality].counts["deduplicated"] += 1

    def count_encoded(self, modality: Modality, rows: int) -> None:
        self._modalities[modality].counts.update(items=1, embeddings=rows)

    @contextmanager
    def pending(self, modality: Modality) -> Iterator[None]:
        """Counts a medium as pending until the block ends."""
        with self._counted(modality, "pending_items"):
            yield

    @contextmanager
    def decoding(self, modality: Modality) -> Iterator[None]:
        """Counts a medium as being decoded until the block ends."""
        with self._counted(modality, "decoding_items"):
            yield

    @contextmanager
    def preprocessing(self, modality: Modality) -> Iterator[None]:
        """Measures the decoding and preprocessing of a medium."""
        with _measured(self._modalities[modality].histograms["decode_seconds"]):
            yield

    @contextmanager
    def encoding(self, modality: Modality) -> Iterator[None]:
        """Measures the encoding of a medium."""
        with _measured(self._modalities[modality].histograms["encode_seconds"]):
            yield

    @contextmanager
    def batch(self, items: Sequence[EncodingWork]) -> Iterator[None]:
        """Measures a batch."""
        with _measured(self._batch_seconds):
            yield
        self._batch_requests.observe(len({item.request_id for item in items}))
        for modality in {item.modality for item in items}:
            patches = [item.patches for item in items if item.modality == modality]
            histograms = self._modalities[modality].histograms
            histograms["batch_items"].observe(len(patches))
            histograms["batch_patches"].observe(sum(patches))

    def metrics(self) -> Iterator[Metric]:
        modalities = dict(self._modalities)  # The event loop may add a modality.
        for name, help in _GAUGES.items():
            gauge = GaugeMetricFamily(f"cornserve_encoder_{name}", help, labels=["modality"])
            for modality, stats in modalities.items():
                gauge.add_metric([modality], stats.gauges[name])
            yield gauge
        for name, help in _COUNTERS.items():
            counter = CounterMetricFamily(f"cornserve_encoder_{name}", help, labels=["modality"])
            for modality, stats in modalities.items():
                counter.add_metric([modality], stats.counts[name])
            yield counter
        for name, help in _HISTOGRAMS.items():
            histogram = HistogramMetricFamily(f"cornserve_encoder_{name}", help, labels=["modality"])
            for modality, stats in modalities.items():
                stats.histograms[name].add_to(histogram, [modality])
            yield histogram
        yield self._batch_requests.family("cornserve_encoder_batch_requests", "Requests per batch.")
        yield self._batch_seconds.family("cornserve_encoder_batch_seconds", "Seconds the device takes for a batch.")

    @contextmanager
    def _counted(self, modality: Modality, gauge: str) -> Iterator[None]:
        self._modalities[modality].gauges[gauge] += 1
        try:
            yield
        finally:
            self._modalities[modality].gauges[gauge] -= 1


@contextmanager
def _measured(histogram: Histogram) -> Iterator[None]:
    """Observes the duration of the block, unless it fails."""
    started = time.perf_counter()
    yield
    histogram.observe(time.perf_counter() - started)
