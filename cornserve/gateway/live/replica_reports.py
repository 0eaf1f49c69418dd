"""Reads the batch sizes, the queues and the received tensors of replicas from their metrics."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cornserve.app.record import GroupStatus, ReplicaState
from cornserve.http_reader import HttpReader, ReadError

RESPONSE_SECONDS: Final = 0.5
"""The time after which a replica does not answer."""

MAX_REPLICAS: Final = 64
"""Replicas of an app that are read."""

MAX_METRICS_BYTES: Final = 1 << 20

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
    addresses = [(replica.id, replica.metrics) for replica in ready if replica.metrics is not None][:MAX_REPLICAS]
    if not addresses:
        return {}
    async with HttpReader(RESPONSE_SECONDS, max_bytes=MAX_METRICS_BYTES) as reader:
        reports = await asyncio.gather(*(_read(reader, address) for _, address in addresses))
    found = zip((id for id, _ in addresses), reports, strict=True)
    return {id: report for id, report in found if report is not None}


async def _read(reader: HttpReader, address: str) -> ReplicaReport | None:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        text = await reader.read(f"http://{address}/metrics", bytes.decode)
        # Parsing all metrics would delay the streams of the event loop.
        lines = [line for line in text.splitlines() if line.startswith(_READ)]
        families = [*text_string_to_metric_families("\n".join(lines) + "\n")]
    except (ReadError, ValueError):
        return None
    values: defaultdict[str, float] = defaultdict(float)
    received: defaultdict[str, int] = defaultdict(int)
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == RECEIVED:
            received[sample.labels.get("kind", "")] += int(sample.value)
        else:
            values[sample.name] += sample.value
    batch = next((values[name] for name in BATCHES if name in values), None)
    queue = next((values[name] for name in QUEUES if name in values), None)
    return ReplicaReport(batch, queue, values.get(KV_CACHE), dict(received))
