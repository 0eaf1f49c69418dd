"""Reads the batch sizes, the queues and the received tensors of replicas from their metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.samples import Sample

from cornserve.app.record import GroupStatus, ReplicaState
from cornserve.gateway.observe.replica_reader import read_metrics

BATCHES: Final = (
    "cornserve_llm_num_requests_running",
    "cornserve_image_generator_running_images",
    "cornserve_talker_running_speeches",
    "cornserve_vocoder_running_speeches",
    "cornserve_text_to_speech_running_requests",
    "cornserve_omni_requests",
    "cornserve_executor_invocations_running",
)
"""Metrics of the batch size. The first one that a replica has counts."""

QUEUES: Final = (
    "cornserve_llm_num_requests_waiting",
    "cornserve_image_generator_waiting_images",
    "cornserve_talker_waiting_speeches",
    "cornserve_encoder_pending_items",
    "cornserve_executor_invocations_waiting",
)
"""Metrics of the queue. The first one that a replica has counts."""

KV_CACHE: Final = "cornserve_llm_kv_cache_usage_perc"
RECEIVED: Final = "cornserve_transport_received_bytes_total"

_READ: Final = (*BATCHES, *QUEUES, KV_CACHE, RECEIVED)


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    batch_size: float | None = None
    queue: float | None = None
    kv_cache_usage: float | None = None
    received_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of received tensors by kind of transfer."""


async def read_reports(groups: Iterable[GroupStatus]) -> dict[str, ReplicaReport]:
    """Returns the reports of the ready replicas that answer, by id."""
    ready = (each for group in groups for each in group.replicas if each.state is ReplicaState.READY)
    return {id: _report(samples) for id, samples in (await read_metrics(ready, _READ)).items()}


def _report(samples: Sequence[Sample]) -> ReplicaReport:
    values: defaultdict[str, float] = defaultdict(float)
    received: defaultdict[str, int] = defaultdict(int)
    for sample in samples:
        if sample.name == RECEIVED:
            received[sample.labels.get("kind", "")] += int(sample.value)
        else:
            values[sample.name] += sample.value
    batch = next((values[name] for name in BATCHES if name in values), None)
    queue = next((values[name] for name in QUEUES if name in values), None)
    return ReplicaReport(batch, queue, values.get(KV_CACHE), dict(received))
