"""Prometheus metrics of an encoder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from prometheus_client import Metric

from cornserve.due_queue import NO_DUE_TIME, DueTime
from cornserve.observe.histogram import TOKENS
from cornserve_executors.engine_stats import EngineStats, counter, gauge, histogram
from cornserve_tasklib.media import Modality


@dataclass(frozen=True, slots=True)
class EncodingWork:
    """The work of encoding a medium, or a part of it."""

    request_id: str
    modality: Modality
    patches: int
    """See `ProcessedMedium.patches`."""
    is_part: bool = False
    """Whether the medium is encoded in parts, because it is long."""
    due: DueTime = NO_DUE_TIME


class _ModalityStats(EngineStats, prefix="cornserve_encoder"):
    pending_items = gauge("Media waiting or being encoded.")
    decoding_items = gauge("Media being decoded, or waiting for a thread to decode them.")
    items = counter("Media encoded.")
    embeddings = counter("Embeddings produced. Each replaces one token of a prompt.")
    cache_hits = counter("Media not encoded because their embeddings were still in shared memory.")
    deduplicated = counter("Media not encoded because the same medium was being encoded.")
    decode_seconds = histogram("Seconds to decode and preprocess a medium, including the wait for a thread.")
    encode_seconds = histogram(
        "Seconds from the end of preprocessing to the embeddings, including the wait for the device."
    )
    batch_items = histogram("Media, or parts of long media, of one modality per batch that has any.", TOKENS)
    batch_patches = histogram("Patches of one modality per batch that has any.", TOKENS)


class EncoderStats(EngineStats, prefix="cornserve_encoder"):
    """Counts and durations by modality, and the batches, which may mix modalities.

    Args:
        modalities: modalities whose metrics exist before the first medium.
    """

    batch_requests = histogram("Requests per batch.", TOKENS)
    batch_seconds = histogram("Seconds the device takes for a batch.")

    def __init__(self, *modalities: Modality) -> None:
        super().__init__()
        self._modalities = defaultdict[Modality, _ModalityStats](
            _ModalityStats, {modality: _ModalityStats() for modality in modalities}
        )

    def count_cache_hit(self, modality: Modality) -> None:
        self._modalities[modality].cache_hits += 1

    def count_deduplicated(self, modality: Modality) -> None:
        self._modalities[modality].deduplicated += 1

    def count_encoded(self, modality: Modality, rows: int) -> None:
        self._modalities[modality].items += 1
        self._modalities[modality].embeddings += rows

    def pending(self, modality: Modality) -> AbstractContextManager[None]:
        """Counts a medium as pending until the block ends."""
        return self._modalities[modality].counted("pending_items")

    @contextmanager
    def decoding(self, modality: Modality) -> Iterator[None]:
        """Counts a medium as being decoded and preprocessed, and measures this unless it fails."""
        stats = self._modalities[modality]
        with stats.counted("decoding_items"), stats.decode_seconds.time():
            yield

    def encoding(self, modality: Modality) -> AbstractContextManager[None]:
        """Measures the encoding of a medium, unless it fails."""
        return self._modalities[modality].encode_seconds.time()

    @contextmanager
    def batch(self, items: Sequence[EncodingWork]) -> Iterator[None]:
        """Measures a batch, unless it fails."""
        with self.batch_seconds.time():
            yield
        self.batch_requests.observe(len({item.request_id for item in items}))
        for modality in {item.modality for item in items}:
            patches = [item.patches for item in items if item.modality == modality]
            stats = self._modalities[modality]
            stats.batch_items.observe(len(patches))
            stats.batch_patches.observe(sum(patches))

    def metrics(self) -> Iterator[Metric]:
        modalities = list(self._modalities.items())  # The event loop may add a modality.
        yield from _ModalityStats.metrics_by("modality", modalities)
        yield from super().metrics()
