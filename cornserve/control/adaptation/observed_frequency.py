"""The observed frequency of components that run only after a value has arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final

from cornserve.app.graph import AppGraph
from cornserve.app.planning import PlanningInputs
from cornserve_policies.adaptation import DEVIATIONS

LEAST_FREQUENCY: Final = 0.005
"""A component that requests of a type have not run keeps this frequency in a plan: later requests may run it."""


@dataclass(frozen=True, slots=True)
class TypeCounts:
    """The requests of a type in a window of time, and the invocations of each deployment option by such requests."""

    requests: int
    invocations: Mapping[str, int]


def with_observed_frequency(
    inputs: PlanningInputs, graph: AppGraph, observed: Mapping[str, TypeCounts]
) -> PlanningInputs:
    """Returns the inputs with the observed frequencies instead of those given that chance does not explain.

    Args:
        observed: the counts by request type. Other types keep the given frequencies.
    """
    workload = dict(inputs.workload)
    for name, counts in observed.items():
        kind = workload[name]
        frequency = dict(kind.frequency)
        for component in sorted(graph.conditional.intersection(kind.components)):
            options = (option for option, each in graph.options.items() if component in each.components)
            runs = sum(counts.invocations.get(option, 0) for option in options)
            expected = counts.requests * frequency.get(component, 1.0)
            if abs(runs - expected) > DEVIATIONS * sqrt(max(expected, 1.0)):
                frequency[component] = max(runs / counts.requests, LEAST_FREQUENCY)
        workload[name] = kind.model_copy(update={"frequency": frequency})
    return inputs.model_copy(update={"workload": workload})
