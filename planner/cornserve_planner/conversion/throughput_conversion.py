"""Converts measured throughputs to seconds for each request type and path step [C App. C, Algorithm 3].

Rates of different request types cannot be added, but seconds of a replica's time can. The seconds of a component are
measured on an executor that runs it alone. On an executor with several components, they are multiplied by a colocation
factor α, which is fitted to the measured mixes.

Unlike the paper, each time has a confidence interval, several mixes of an option are fitted together, and a component
that was not measured alone is fitted if enough mixes separate it from the others (`conversion_fit.py`). Components that
the same options run for the same requests need not be separated: each gets an equal part of their time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cornserve_planner.conversion.conversion_fit import fit_option
from cornserve_planner.conversion.fitted_option import KnownCost, OptionFit
from cornserve_planner.conversion.size_costs import CostModel, Draws, TypeDemands
from cornserve_planner.conversion.throughput_measurement import (
    MeasurementCheck,
    ThroughputMeasurement,
    joined_sources,
    weakest_tag,
)
from cornserve_planner.errors import InvalidInputError, require_between
from cornserve_planner.model.graph import DeploymentOption, ExecutorGraph, PathStep, RequestType
from cornserve_planner.profiles.sourced_value import Tag
from cornserve_planner.requests.request_sizes import RequestSizes

CONFIDENCE = 0.9
"""Probability that an interval contains the true value, if the errors are as stated. `benchmarks/interval_coverage.py`
measures it for executors whose times are not additive."""

FACTORS = (0.01, 100.0)
"""Range of assumed factors."""


@dataclass(frozen=True, slots=True)
class ConvertedTime:
    """The seconds of a replica's time that a request needs, with a confidence interval.

    Args:
        tag: that of the least certain rate from which the time follows.
        source: the sources of these rates.
    """

    seconds: float
    low: float
    high: float
    tag: Tag
    source: str


@dataclass(frozen=True)
class ThroughputConversion:
    """Seconds of a replica's time. Callable as the `seconds` argument of `PlanningProblem.from_graph`.

    Args:
        costs: by option and component, including the option's factor.
        demands: the request types with their mean sizes.
        factors: α of each option; 1 for a single component.
        rates: by option and component, the measurements from which the seconds follow.
        checks: measurements of options with more mixes than needed.
    """

    costs: Mapping[tuple[str, str], CostModel]
    demands: TypeDemands
    factors: Mapping[str, float]
    rates: Mapping[tuple[str, str], tuple[ThroughputMeasurement, ...]]
    checks: tuple[MeasurementCheck, ...] = ()

    def __call__(self, request_type: RequestType, step: PathStep) -> float:
        return float(self.drawn(request_type, step)[0])

    def drawn(self, request_type: RequestType, step: PathStep) -> Draws:
        """Returns the estimated mean seconds of a step, followed by random draws."""
        mix, where = {request_type.name: 1.0}, f"types.{request_type.name}"
        return sum(
            self.costs[step.option, component].seconds(self.demands.of(component, where, mix))
            for component in step.role
        )

    def time(self, request_type: RequestType, step: PathStep) -> ConvertedTime:
        """Returns the seconds of a step with their confidence interval."""
        low, high = interval(self.drawn(request_type, step))
        used = [rate for component in step.role for rate in self.rates[step.option, component]]
        return ConvertedTime(self(request_type, step), low, high, weakest_tag(used), joined_sources(used))

    def times(self, graph: ExecutorGraph, types: Iterable[RequestType]) -> dict[tuple[str, str, str], ConvertedTime]:
        """Returns the times by option, path and request type, for all valid paths."""
        return {
            (step.option, valid.name, kind.name): self.time(kind, step)
            for kind in types
            for valid in graph.valid_paths(kind)
            for step in valid.steps
        }

    @property
    def seconds(self) -> dict[tuple[str, str], float]:
        """The estimated seconds by option and component, if they do not depend on the request's size."""
        return {key: float(cost.fixed[0]) for key, cost in self.costs.items() if not cost.per_unit}


def interval(draws: Draws) -> tuple[float, float]:
    """Returns the confidence interval of a quantity, from its estimate followed by random draws."""
    low, high = (float(np.quantile(draws[1:], (1 + sign * CONFIDENCE) / 2)) for sign in (-1, 1))
    return min(low, float(draws[0])), max(high, float(draws[0]))


def convert(
    graph: ExecutorGraph,
    types: Iterable[RequestType],
    measurements: Iterable[ThroughputMeasurement],
    factors: Mapping[str, float] | None = None,
    sizes: Mapping[str, RequestSizes] | None = None,
) -> ThroughputConversion:
    """Converts the measurements of all options that are on a path and run a component that a type needs.

    Args:
        factors: assumed factors of options that were not measured.
        sizes: the mean sizes of the requests of each type, by name, where they are known.

    Raises `InvalidInputError` for invalid or missing measurements, and for mixes that do not separate components.
    """
    demands = TypeDemands({kind.name: kind for kind in types}, sizes or {})
    return _Conversion(graph, demands, tuple(measurements), dict(factors or {})).convert()


class _Conversion:
    def __init__(
        self,
        graph: ExecutorGraph,
        demands: TypeDemands,
        measurements: tuple[ThroughputMeasurement, ...],
        assumed: Mapping[str, float],
    ) -> None:
        self.demands = demands
        needed = frozenset().union(*(kind.components for kind in demands.types.values()))
        on_paths = frozenset(name for path in graph.paths for name in path.options)
        used = [
            replace(option, components=components)
            for option in graph.options
            if option.name in on_paths and (components := tuple(name for name in option.components if name in needed))
        ]
        self.groups = _group_components(used, demands)
        """Components that need not be separated, by the first of each group, which stands for all."""
        self.options = [
            replace(option, components=tuple(name for name in option.components if name in self.groups))
            for option in used
        ]
        self.measured: dict[str, list[ThroughputMeasurement]] = {}
        for measurement in measurements:
            measurement.check(graph, demands.types)
            self.measured.setdefault(measurement.option, []).append(measurement)
        self.assumed = assumed
        self.alone: dict[tuple[str, str | None, int], KnownCost] = {}
        """Components alone, by name, GPU type and number of GPUs."""
        self.fits: dict[str, OptionFit] = {}
        self._check_assumed()

    def convert(self) -> ThroughputConversion:
        waiting = sorted(self.options, key=lambda option: len(option.components) > 1)
        while waiting:
            fitted = [option for option in waiting if self._fit(option)]
            if not fitted:
                raise self._cannot_separate(waiting[0])
            waiting = [option for option in waiting if option not in fitted]
        fits = [(option.name, self.fits[option.name]) for option in self.options]
        return ThroughputConversion(
            {
                (name, member): cost * (1 / len(self.groups[component]))
                for name, fit in fits
                for component, cost in fit.costs.items()
                for member in self.groups[component]
            },
            self.demands,
            {name: fit.factor for name, fit in fits},
            {
                (name, member): rates
                for name, fit in fits
                for component, rates in fit.rates.items()
                for member in self.groups[component]
            },
            tuple(check for _, fit in fits for check in fit.checks),
        )

    def _fit(self, option: DeploymentOption) -> bool:
        """Determines the seconds of an option. Returns False if other options must be determined first."""
        single = len(option.components) == 1
        known = {
            name: found for name in option.components if not single and (found := self._alone(option, name)) is not None
        }
        complete = len(known) == len(option.components)
        measured = self.measured.get(option.name, [])
        if not measured and not complete and not single:
            return False
        fit: OptionFit | None
        if measured:
            fit = fit_option(option, known, measured, self.demands)
        elif option.name in self.assumed and complete:
            fit = OptionFit.assumed(self.assumed[option.name], known)
        else:
            advice = f"add a measurement of {option.components[0]} on it" if single else "measure it or give its factor"
            raise InvalidInputError(f"options.{option.name}", f"was not measured: {advice}")
        if fit is None:
            return False
        self.fits[option.name] = fit
        for component, cost in fit.alone.items():
            self.alone.setdefault((component, option.gpu, option.gpus), (cost, fit.rates[component]))
        return True

    def _alone(self, option: DeploymentOption, component: str) -> KnownCost | None:
        """Returns a component's seconds alone on the same GPU type, or None.

        Prefers a measurement with the same number of GPUs. The effect of a different number becomes part of the factor.
        """
        found = [
            (gpus, times) for (name, gpu, gpus), times in self.alone.items() if (name, gpu) == (component, option.gpu)
        ]
        return min(found, key=lambda item: (abs(item[0] - option.gpus), item[0]))[1] if found else None

    def _cannot_separate(self, option: DeploymentOption) -> InvalidInputError:
        unknown = [component for component in option.components if self._alone(option, component) is None]
        needed = len(unknown) + (len(unknown) < len(option.components))
        mixes = len(self.measured.get(option.name, []))
        return InvalidInputError(
            f"components.{unknown[0]}",
            f"was never measured alone, and {option.name}, measured at {mixes} mix{'es' * (mixes != 1)}, does not "
            f"separate it from the others: measure it alone, or {option.name} with {needed} different mixes",
        )

    def _check_assumed(self) -> None:
        names = {option.name for option in self.options}
        for name, factor in self.assumed.items():
            where = f"factors.{name}"
            if name not in names:
                raise InvalidInputError(where, f"is not an option on any path: use one of {', '.join(sorted(names))}")
            if name in self.measured:
                raise InvalidInputError(where, "is assumed, but the option was measured: remove the factor")
            require_between(where, factor, *FACTORS)


def _group_components(options: Iterable[DeploymentOption], demands: TypeDemands) -> dict[str, tuple[str, ...]]:
    """Returns the components that the same options run for the same requests, by the first of them."""
    kinds, options = demands.types.values(), tuple(options)
    groups: dict[tuple[object, ...], list[str]] = {}
    for component in dict.fromkeys(name for option in options for name in option.components):
        users = [option.name for option in options if component in option.components]
        shares = [component in kind.components and kind.frequency.get(component, 1.0) for kind in kinds]
        groups.setdefault((*users, *shares), []).append(component)
    return {members[0]: tuple(members) for members in groups.values()}
