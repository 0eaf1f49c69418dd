"""Reads the shared memory of an app's replicas, and their copies of KV caches, from their metrics."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from cornserve.app.record import GroupStatus, ReplicaMemory
from cornserve.http_reader import HttpReader, ReadError

RESPONSE_SECONDS: Final = 1.0
"""The time after which a replica does not answer."""

_SLAB: Final = "cornserve_transport_slab_bytes"
_RESIDENT: Final = "cornserve_transport_slab_resident_bytes"
_PROTOCOL: Final = "cornserve_transport_protocol"
_PULLED: Final = "cornserve_transport_pulled_bytes"
_KV_COPY: Final = "cornserve_llm_kv_copy_seconds"
_KV_BYTES: Final = "cornserve_llm_kv_copied_bytes"
_READ: Final = (_SLAB, _RESIDENT, _PROTOCOL, _PULLED, _KV_COPY, _KV_BYTES)


async def read_replica_memory(groups: Sequence[GroupStatus]) -> list[ReplicaMemory]:
    """Returns the memory of each replica that answers, and has taken some or copied KV caches."""
    metrics = {replica.id: replica.metrics for group in groups for replica in group.replicas}
    async with HttpReader(RESPONSE_SECONDS) as reader:
        found = await asyncio.gather(*(_read(reader, id, address) for id, address in metrics.items() if address))
    return [memory for memory in found if memory is not None and (memory.resident or memory.kv_copies)]


async def _read(reader: HttpReader, id: str, address: str) -> ReplicaMemory | None:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        text = await reader.read(f"http://{address}/metrics", bytes.decode)
        # Parsing all metrics would delay the streams of the event loop.
        lines = [line for line in text.splitlines() if any(name in line for name in _READ)]
        families = text_string_to_metric_families("\n".join(lines) + "\n")
        parsed = [sample for family in families for sample in family.samples]
    except (ReadError, ValueError):
        return None
    slab = {sample.labels["state"]: int(sample.value) for sample in parsed if sample.name == _SLAB}
    total: defaultdict[str, float] = defaultdict(float)
    for sample in parsed:
        total[sample.name] += sample.value
    return ReplicaMemory(
        id=id,
        limit=sum(slab.values()),
        resident=int(total[_RESIDENT]),
        used=slab.get("held", 0) + slab.get("cached", 0),
        protocols=[sample.labels["protocol"] for sample in parsed if sample.name == _PROTOCOL],
        pulled_bytes={
            sample.labels["protocol"]: int(sample.value)
            for sample in parsed
            if sample.name == f"{_PULLED}_total" and sample.value
        },
        kv_copies=int(total[f"{_KV_COPY}_count"]),
        kv_copied_bytes=int(total[f"{_KV_BYTES}_total"]),
        kv_copy_seconds=total[f"{_KV_COPY}_sum"],
    )
