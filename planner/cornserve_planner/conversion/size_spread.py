"""The spread of the seconds of requests of one type, which a plan replaces by their mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cornserve_planner.conversion.throughput_conversion import ThroughputConversion
from cornserve_planner.workload.document import Workload


@dataclass(frozen=True, slots=True)
class SizeSpread:
    """The spread of a component's seconds over the requests of a type.

    Args:
        largest: the largest seconds divided by the mean.
        variation: standard deviation divided by the mean (coefficient of variation).
    """

    type: str
    component: str
    variation: float
    largest: float


def size_spreads(workload: Workload, conversion: ThroughputConversion) -> tuple[SizeSpread, ...]:
    """Returns the spread of each type and component whose seconds depend on sizes, the largest first."""
    models = {component: cost for (_, component), cost in conversion.costs.items() if cost.per_unit}
    found = []
    for kind in workload.shares:
        requests = workload.sizes.get(kind.name, ())
        for component in sorted(models.keys() & kind.components) if len(requests) > 1 else ():
            cost = models[component]
            parts = [
                float(seconds[0]) * np.array([each[unit] for each in requests])
                for unit, seconds in cost.per_unit.items()
            ]
            seconds = float(cost.fixed[0]) + np.sum(parts, axis=0)
            mean = float(seconds.mean())
            found.append(SizeSpread(kind.name, component, float(seconds.std()) / mean, float(seconds.max()) / mean))
    return tuple(sorted(found, key=lambda spread: -spread.variation))
