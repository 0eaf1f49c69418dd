"""Reads metrics of replicas, within limits for their number, their size and the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final

from prometheus_client.samples import Sample

from cornserve.app.record import ReplicaStatus
from cornserve.http_reader import HttpReader, ReadError

MAX_REPLICAS: Final = 64
"""Replicas of an app that are read."""

MAX_METRICS_BYTES: Final = 1 << 20
"""The size of the metrics of a replica."""

RESPONSE_SECONDS: Final = 1.0
"""The time after which a replica does not answer."""


async def read_metrics(replicas: Iterable[ReplicaStatus], prefixes: tuple[str, ...]) -> Mapping[str, Sequence[Sample]]:
    """Returns the finite samples whose names begin with one of the prefixes, by the id of the replica.

    Replicas without metrics, those that do not answer in time, and those after the first `MAX_REPLICAS` are left out.
    """
    addresses = [(replica.id, replica.metrics) for replica in replicas if replica.metrics is not None][:MAX_REPLICAS]
    if not addresses:
        return {}
    async with HttpReader(RESPONSE_SECONDS, max_bytes=MAX_METRICS_BYTES) as reader:
        answers = await asyncio.gather(*(_read(reader, address, prefixes) for _, address in addresses))
    found = zip((id for id, _ in addresses), answers, strict=True)
    return {id: samples for id, samples in found if samples is not None}


async def _read(reader: HttpReader, address: str, prefixes: tuple[str, ...]) -> Sequence[Sample] | None:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        text = await reader.read(f"http://{address}/metrics", bytes.decode)
        # Parsing all metrics would delay the streams of the event loop.
        lines = [line for line in text.splitlines() if line.startswith(prefixes)]
        families = text_string_to_metric_families("\n".join(lines) + "\n")
        return [sample for family in families for sample in family.samples if isfinite(sample.value)]
    except (ReadError, ValueError):
        return None
