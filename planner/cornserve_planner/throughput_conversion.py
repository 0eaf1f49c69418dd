"""Converts measured throughputs to seconds for each request type and path step [C App. C, Algorithm 3].

Rates of different request types cannot be added, but seconds of a replica's time can. The seconds of a component are
measured on an executor that runs it alone. On an executor with several components, they are multiplied by a colocation
factor α, which is fitted to the measured mix. Only a second mix can check the factor.

Unlike the paper, a component that was not measured alone is fitted by least squares, if an executor that runs it was
measured with enough mixes to separate its components. Otherwise, the conversion raises an error that names the
component.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cornserve_planner.errors import InvalidInputError, require_non_negative, require_positive
from cornserve_planner.graph import DeploymentOption, ExecutorGraph, PathStep, RequestType
from cornserve_planner.problem import SHARES_TOLERANCE

INDEPENDENT = 1e-6
"""Mixes separate components if their smallest singular value is at least this fraction of the largest."""


@dataclass(frozen=True, slots=True)
class ThroughputMeasurement:
    """The measured throughput of one replica of an option.

    Args:
        rate: requests per second, counting all requests of the mix, including those that skip the option.
        mix: the share of each request type, by name.
    """

    option: str
    rate: float
    mix: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MeasurementCheck:
    """A measurement and the throughput that the conversion predicts for its mix.

    Args:
        fitted: whether the measurement was part of an overdetermined fit, so that the error is a residual.
    """

    measurement: ThroughputMeasurement
    predicted: float
    fitted: bool

    @property
    def error(self) -> float:
        """Relative error of the predicted rate."""
        return self.predicted / self.measurement.rate - 1


@dataclass(frozen=True)
class ThroughputConversion:
    """Seconds of a replica's time. Callable as the `seconds` argument of `PlanningProblem.from_graph`.

    Args:
        seconds: by option and component, including the option's factor.
        factors: α of each option; 1 for a single component.
    """

    seconds: Mapping[tuple[str, str], float]
    factors: Mapping[str, float]
    checks: tuple[MeasurementCheck, ...] = ()

    def __call__(self, request_type: RequestType, step: PathStep) -> float:
        return math.fsum(self.seconds[step.option, component] for component in step.role)


def convert(
    graph: ExecutorGraph,
    types: Iterable[RequestType],
    measurements: Iterable[ThroughputMeasurement],
    factors: Mapping[str, float] | None = None,
) -> ThroughputConversion:
    """Converts the measurements of all options that are on a path.

    An option's first measurement determines its factor, and the others check it. If a component was not measured alone,
    all measurements are fitted.

    Args:
        factors: assumed factors of options that were not measured.

    Raises `InvalidInputError` for invalid or missing measurements.
    """
    return _Fit(graph, {kind.name: kind for kind in types}, tuple(measurements), dict(factors or {})).convert()


class _Fit:
    def __init__(
        self,
        graph: ExecutorGraph,
        types: Mapping[str, RequestType],
        measurements: tuple[ThroughputMeasurement, ...],
        assumed: Mapping[str, float],
    ) -> None:
        self.types = types
        self.options = [o for o in graph.options if any(o.name in path.options for path in graph.paths)]
        self.measured: dict[str, list[ThroughputMeasurement]] = {}
        for measurement in measurements:
            _check(measurement, graph, types)
            self.measured.setdefault(measurement.option, []).append(measurement)
        self.assumed = assumed
        self.alone: dict[tuple[str, str | None, int], float] = {}
        """Seconds of a component alone, by component, GPU type and number of GPUs."""
        self.seconds: dict[tuple[str, str], float] = {}
        self.factors: dict[str, float] = {}
        self.checks: list[MeasurementCheck] = []
        self._check_assumed()

    def convert(self) -> ThroughputConversion:
        for option in self.options:
            if len(option.components) == 1:
                self._fit_single(option)
        waiting = [option for option in self.options if option.name not in self.factors]
        while waiting:
            fitted = [option for option in waiting if self._fit(option)]
            if not fitted:
                raise self._cannot_separate(waiting[0])
            waiting = [option for option in waiting if option not in fitted]
        return ThroughputConversion(self.seconds, self.factors, tuple(self.checks))

    def _fit_single(self, option: DeploymentOption) -> None:
        (component,) = option.components
        if option.name not in self.measured:
            raise InvalidInputError(
                f"options.{option.name}", f"was not measured: add a measurement of {component} on it"
            )
        first = self.measured[option.name][0]
        seconds = 1 / first.rate / self._needed(component, first)
        self.alone.setdefault((component, option.gpu, option.gpus), seconds)
        self._set_times(option, 1.0, {component: seconds}, used=1)

    def _fit(self, option: DeploymentOption) -> bool:
        """Determines the seconds of an option. Returns False if other options must be determined first."""
        known = {component: self._seconds_alone(option, component) for component in option.components}
        unknown = [component for component, seconds in known.items() if seconds is None]
        alone = {component: seconds for component, seconds in known.items() if seconds is not None}
        measured = self.measured.get(option.name, [])
        if not unknown:
            if option.name in self.assumed:
                factor = self.assumed[option.name]
            elif measured:
                factor = 1 / measured[0].rate / self._demand(option, alone, measured[0])
            else:
                raise InvalidInputError(f"options.{option.name}", "was not measured: measure it or give its factor")
            self._set_times(option, factor, alone, used=min(1, len(measured)))
            return True
        return self._fit_unknown(option, alone, unknown, measured)

    def _fit_unknown(
        self,
        option: DeploymentOption,
        alone: Mapping[str, float],
        unknown: list[str],
        measured: list[ThroughputMeasurement],
    ) -> bool:
        """Fits the unknown components by least squares.

        The measured seconds of each mix are the sum of the components' seconds, weighted by the share of requests that
        need them.
        """
        columns = [[self._use(component, m) for m in measured] for component in unknown]
        if alone:
            columns.insert(0, [sum(self._use(c, m) * seconds for c, seconds in alone.items()) for m in measured])
        matrix = np.array(columns, dtype=float).reshape(len(columns), len(measured)).T
        scale = np.linalg.norm(matrix, axis=0)
        if len(measured) < len(columns) or not scale.all():
            return False
        if np.linalg.matrix_rank(matrix / scale, tol=INDEPENDENT) < len(columns):
            return False
        seconds = [1 / measurement.rate for measurement in measured]
        found = [float(x) for x in np.linalg.lstsq(matrix / scale, seconds, rcond=None)[0] / scale]
        if (least := min(found)) <= 0:
            names = [f"the factor of {option.name}"] * bool(alone) + unknown
            raise InvalidInputError(
                f"measurements of {option.name}",
                f"contradict each other: {names[found.index(least)]} would be {least:.3g}, not above 0: measure again",
            )
        factor = found.pop(0) if alone else 1.0
        fitted = {component: value / factor for component, value in zip(unknown, found, strict=True)}
        self.alone |= {(component, option.gpu, option.gpus): value for component, value in fitted.items()}
        self._set_times(option, factor, {**alone, **fitted}, used=len(measured), exact=len(measured) == len(columns))
        return True

    def _set_times(
        self, option: DeploymentOption, factor: float, times: Mapping[str, float], used: int, exact: bool = True
    ) -> None:
        self.factors[option.name] = factor
        for component, seconds in times.items():
            self.seconds[option.name, component] = factor * seconds
        for index, measurement in enumerate(self.measured.get(option.name, [])):
            if index >= used or not exact:
                predicted = 1 / (factor * self._demand(option, times, measurement))
                self.checks.append(MeasurementCheck(measurement, predicted, fitted=index < used))

    def _seconds_alone(self, option: DeploymentOption, component: str) -> float | None:
        """Returns a component's seconds alone on the same GPU type, or None.

        Prefers a measurement with the same number of GPUs. The effect of a different number becomes part of the factor.
        """
        found = [
            (gpus, seconds)
            for (name, gpu, gpus), seconds in self.alone.items()
            if (name, gpu) == (component, option.gpu)
        ]
        return min(found, key=lambda item: (abs(item[0] - option.gpus), item[0]))[1] if found else None

    def _use(self, component: str, measurement: ThroughputMeasurement) -> float:
        """Returns the fraction of a mix's requests that need a component."""
        return math.fsum(share for name, share in measurement.mix.items() if component in self.types[name].components)

    def _needed(self, component: str, measurement: ThroughputMeasurement) -> float:
        if not (use := self._use(component, measurement)):
            raise InvalidInputError(
                f"measurements of {measurement.option}", f"no request of the mix needs {component}: measure another mix"
            )
        return use

    def _demand(
        self, option: DeploymentOption, times: Mapping[str, float], measurement: ThroughputMeasurement
    ) -> float:
        """Returns d_s: the seconds that the mean request of a mix needs on an option, without the option's factor."""
        demand = math.fsum(self._use(component, measurement) * times[component] for component in option.components)
        if not demand:
            raise InvalidInputError(
                f"measurements of {option.name}",
                f"no request of the mix needs any of {', '.join(option.components)}: measure another mix",
            )
        return demand

    def _cannot_separate(self, option: DeploymentOption) -> InvalidInputError:
        unknown = [component for component in option.components if self._seconds_alone(option, component) is None]
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
            require_positive(where, factor)


def _check(measurement: ThroughputMeasurement, graph: ExecutorGraph, types: Mapping[str, RequestType]) -> None:
    where = f"measurements of {measurement.option}"
    if measurement.option not in graph.option:
        raise InvalidInputError(where, f"is not an option of the model: use one of {', '.join(graph.option)}")
    require_positive(f"{where}.rate", measurement.rate)
    for name, share in measurement.mix.items():
        if name not in types:
            raise InvalidInputError(f"{where}.mix", f"{name!r} is not a request type: use one of {', '.join(types)}")
        require_non_negative(f"{where}.mix.{name}", share)
    if abs((total := math.fsum(measurement.mix.values())) - 1) > SHARES_TOLERANCE:
        raise InvalidInputError(f"{where}.mix", f"the shares add up to {total:.6g}, not to 1: correct them")
