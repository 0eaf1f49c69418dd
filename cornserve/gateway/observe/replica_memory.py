"""Reads the shared memory of an app's replicas, and their copies of KV caches, from their metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from prometheus_client.samples import Sample

from cornserve.app.record import GroupStatus, ReplicaMemory
from cornserve.gateway.observe.replica_reader import read_metrics

_SLAB: Final = "cornserve_transport_slab_bytes"
_RESIDENT: Final = "cornserve_transport_slab_resident_bytes"
_PROTOCOL: Final = "cornserve_transport_protocol"
_PULLED: Final = "cornserve_transport_pulled_bytes"
_KV_COPY: Final = "cornserve_llm_kv_copy_seconds"
_KV_BYTES: Final = "cornserve_llm_kv_copied_bytes"
_READ: Final = (_SLAB, _RESIDENT, _PROTOCOL, _PULLED, _KV_COPY, _KV_BYTES)


async def read_replica_memory(groups: Sequence[GroupStatus]) -> list[ReplicaMemory]:
    """Returns the memory of each replica that answers, if it uses tensors or copies KV caches."""
    read = await read_metrics((replica for group in groups for replica in group.replicas), _READ)
    found = (_memory(id, samples) for id, samples in read.items())
    return [each for each in found if each.protocols or each.resident or each.kv_copies]


def _memory(id: str, samples: Sequence[Sample]) -> ReplicaMemory:
    slab = {sample.labels.get("state"): int(sample.value) for sample in samples if sample.name == _SLAB}
    total: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        total[sample.name] += sample.value
    return ReplicaMemory(
        id=id,
        limit=sum(slab.values()),
        resident=int(total[_RESIDENT]),
        used=slab.get("held", 0) + slab.get("cached", 0),
        protocols=[sample.labels.get("protocol", "") for sample in samples if sample.name == _PROTOCOL],
        pulled_bytes={
            sample.labels.get("protocol", ""): int(sample.value)
            for sample in samples
            if sample.name == f"{_PULLED}_total" and sample.value
        },
        kv_copies=int(total[f"{_KV_COPY}_count"]),
        kv_copied_bytes=int(total[f"{_KV_BYTES}_total"]),
        kv_copy_seconds=total[f"{_KV_COPY}_sum"],
    )
