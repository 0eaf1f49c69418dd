"""The last hour of an app, from the steps of all gateways."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, Field

from cornserve.app.overview import AppSeries, ReadGateways
from cornserve.gateway.observe.app_counts import LATENCIES
from cornserve.gateway.observe.app_history import BUCKETS, FIGURES, STEP_SECONDS, STEPS, VALUES, AppStep, StateCounts
from cornserve.observe.histogram import quantile


class GatewaySteps(BaseModel):
    """The steps of an app in one gateway."""

    steps: list[tuple[int, Annotated[list[int], Field(min_length=VALUES, max_length=VALUES)]]]

    @classmethod
    def of(cls, steps: Iterable[AppStep]) -> GatewaySteps:
        return cls(steps=[(step.number, [*step.values]) for step in steps])


def app_series(gateways: Iterable[GatewaySteps], read: ReadGateways, now: float, longest_hours: int = 1) -> AppSeries:
    """Adds the steps of gateways. Replicas are those of the gateway that knows most."""
    last = int(now / STEP_SECONDS)
    values: dict[int, list[int]] = {}
    replicas: dict[int, StateCounts] = {}
    for gateway in gateways:
        for number, figures in gateway.steps:
            known = values.get(number)
            values[number] = figures if known is None else [a + b for a, b in zip(known, figures, strict=True)]
            counts = StateCounts(*figures[4:FIGURES])
            replicas[number] = max(replicas.get(number, counts), counts, key=sum)
    first = min(values, default=last)
    numbers = range(max(first, last - STEPS + 1), last + 1)
    empty = [0] * VALUES
    rows = [values.get(number, empty) for number in numbers]
    earlier = [number for number in replicas if number < numbers.start]
    states, present = list[StateCounts](), replicas[max(earlier)] if earlier else StateCounts()
    for number in numbers:
        present = replicas.get(number, present)
        states.append(present)
    columns = {
        f"{name}_{percentile}": [_quantile(row, index, share) for row in rows]
        for index, name in enumerate(LATENCIES)
        for percentile, share in (("p50", 0.5), ("p90", 0.9))
    }
    return AppSeries(
        step_seconds=STEP_SECONDS,
        longest_hours=longest_hours,
        gateways=read,
        times=[number * STEP_SECONDS for number in numbers],
        requests_per_second=[row[0] / STEP_SECONDS for row in rows],
        errors_per_second=[row[1] / STEP_SECONDS for row in rows],
        generation_tokens_per_second=[row[2] / STEP_SECONDS for row in rows],
        running=[row[3] for row in rows],
        ready=[counts.ready for counts in states],
        starting=[counts.starting for counts in states],
        draining=[counts.draining for counts in states],
        failed=[counts.failed for counts in states],
        **columns,
    )


def _quantile(row: list[int], latency: int, share: float) -> float | None:
    start = FIGURES + latency * BUCKETS
    return quantile(dict(enumerate(row[start : start + BUCKETS])), share)
