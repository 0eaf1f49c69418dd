"""The result of fitting one option to its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cornserve_planner.conversion.size_costs import CostModel
from cornserve_planner.conversion.throughput_measurement import MeasurementCheck, ThroughputMeasurement

KnownCost = tuple[CostModel, tuple[ThroughputMeasurement, ...]]
"""The cost of a component alone, and the measurements from which it follows."""


@dataclass(frozen=True)
class OptionFit:
    """The costs of an option's components.

    Args:
        factor: α; 1 if no component was measured alone.
        costs: by component, including the factor.
        alone: by component that was not known before, without the factor.
        rates: by component, the measurements from which its cost follows.
        checks: the measurements, if there are more than needed.
    """

    factor: float
    costs: Mapping[str, CostModel]
    rates: Mapping[str, tuple[ThroughputMeasurement, ...]]
    alone: Mapping[str, CostModel] = field(default_factory=dict)
    checks: tuple[MeasurementCheck, ...] = ()

    @classmethod
    def assumed(cls, factor: float, known: Mapping[str, KnownCost]) -> OptionFit:
        """Returns the costs of an option with an assumed factor."""
        costs = {component: cost * factor for component, (cost, _) in known.items()}
        return cls(factor, costs, {component: rates for component, (_, rates) in known.items()})
