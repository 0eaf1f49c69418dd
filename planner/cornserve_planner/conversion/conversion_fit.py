"""Fits the seconds of one option's components to the measured mixes.

The seconds of a mix are the sum of its components' seconds, weighted by the share of requests that need them. A
component that was measured alone takes its seconds alone times (α + d): α is the option's factor, and d the component's
deviation from it, because components that share a GPU overlap or interfere to different degrees. A component that was
not measured alone takes unknown seconds. All are fitted by least squares, weighted by the errors of the measurements
and by the expected deviation.

To find the distribution of the result, the fit is repeated with random measurements, drawn from their errors
(parametric bootstrap [Efron, Tibshirani, An Introduction to the Bootstrap, §6.5]).

Real seconds are not additive: components overlap within a request, and requests of different types slow each other
down. Two terms widen the distribution for options with several components. If the fit misses the measurements by more
than their errors, the draws are widened by this ratio (Birge ratio [Birge, The Calculation of Errors by the Method of
Least Squares, Physical Review 40 (1932)]). The mixes of a plan differ from the measured ones: their seconds deviate by
`MISFIT`, times the ratio.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cornserve_planner.conversion.fitted_option import KnownCost, OptionFit
from cornserve_planner.conversion.size_costs import CostModel, Draws, TypeDemands, fit_cost, varying_units
from cornserve_planner.conversion.throughput_measurement import MeasurementCheck, ThroughputMeasurement
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.requests.request_sizes import SizeUnit

DRAWS = 500

DEVIATION = 0.3
"""Standard deviation of the factors of one executor's components, relative to their mean."""

MISFIT = 0.07
"""Standard deviation of the seconds of a mix that was not measured, relative to the sum of its components' seconds, if
the measurements agree with such sums. `benchmarks/interval_coverage.py` calibrates it."""

INDEPENDENT = 1e-6
"""Mixes separate components if their smallest singular value is at least this fraction of the largest."""

LARGEST_ERROR = 0.5
"""Components are not separated if the error of their seconds exceeds this fraction of the mean request's seconds and
`AMPLIFICATION` times the error of the measurements."""

AMPLIFICATION = 3.0

INFLUENCE = 1e-6
"""A measurement influences a component if its seconds change by at least this fraction of the measurement's change."""

SMALLEST = 1e-3
"""The smallest draw, relative to the estimate."""


def fit_option(
    option: DeploymentOption,
    known: Mapping[str, KnownCost],
    measured: Sequence[ThroughputMeasurement],
    types: TypeDemands,
) -> OptionFit | None:
    """Fits an option to its measurements. Returns None if their number or their mixes do not separate its components.

    Args:
        known: costs of the components that were measured alone.

    Raises `InvalidInputError` if the measurements contradict each other, if the mixes need none of the components, or
    if they are so similar that the result would be mostly error.
    """
    return _Fit(option, known, measured, types).fit()


class _Fit:
    """The linear system. Its first columns are α, if components are known, and the seconds of the unknown components;
    the others are the deviations of the known components."""

    def __init__(
        self,
        option: DeploymentOption,
        known: Mapping[str, KnownCost],
        measured: Sequence[ThroughputMeasurement],
        types: TypeDemands,
    ) -> None:
        self.option = option
        self.known = known
        self.unknown = [component for component in option.components if component not in known]
        self.measured = measured
        where = f"measurements of {option.name}"
        self.demands = {name: [types.of(name, where, mix.mix) for mix in measured] for name in option.components}
        self.use = {name: np.array([demand.share for demand in found]) for name, found in self.demands.items()}
        self.seconds = np.array([1 / measurement.rate for measurement in measured])
        self.errors = np.array([measurement.spread for measurement in measured])

    def fit(self) -> OptionFit | None:
        self._check_use()
        if len(self.option.components) == 1 and (units := varying_units(self.demands[self.unknown[0]])):
            return self._fit_sizes(units)
        columns = self._columns()
        if not self._separates(columns[0]):
            return None
        weights = 1 / (self.errors * self.seconds)
        first = np.linalg.lstsq(columns[0] * weights[:, None], weights * self.seconds, rcond=None)[0]
        self._check_positive(first)
        found, influence = self._solve(columns, first[0])
        self._check_positive(found[0])
        for index, component in enumerate(self.unknown, int(bool(self.known))):
            self._check_error(component, _positive(found[:, index]))
        if len(self.option.components) > 1:
            found = self._widened(found, columns)
        return self._result(found, influence)

    def _fit_sizes(self, units: Sequence[SizeUnit]) -> OptionFit:
        """Fits the cost of a single component that was measured at several sizes."""
        (name,) = self.unknown
        cost = fit_cost(self.demands[name], units, self.seconds * np.exp(self.errors * self._noise()), self.errors)
        costs, rates = {name: cost}, {name: tuple(self.measured)}
        return OptionFit(
            1.0, costs, rates, costs, tuple(self._checks(costs)) if len(self.measured) > 1 + len(units) else ()
        )

    def _noise(self) -> Any:
        """Returns standard normal variables for the measurements and the known components, 0 for the estimate."""
        rng = np.random.default_rng(zlib.crc32(self.option.name.encode()))
        noise = rng.standard_normal((DRAWS + 1, len(self.measured) + len(self.known)))
        noise[0] = 0
        return noise

    def _columns(self) -> Any:
        """Returns the main columns: draws × measurements × columns."""
        columns = [np.broadcast_to(self.use[name], (DRAWS + 1, len(self.measured))) for name in self.unknown]
        if self.known:
            columns.insert(0, np.sum([self._known_column(name) for name in self.known], axis=0))
        return np.stack(columns, axis=2)

    def _known_column(self, component: str) -> Any:
        cost = self.known[component][0]
        return np.stack([np.broadcast_to(cost.seconds(d), (DRAWS + 1,)) for d in self.demands[component]], axis=1)

    def _separates(self, columns: Any) -> bool:
        scale = np.linalg.norm(columns, axis=0)
        return bool(scale.all()) and np.linalg.matrix_rank(columns / scale, tol=INDEPENDENT) == columns.shape[1]

    def _solve(self, columns: Any, factor: float) -> tuple[Any, Any]:
        """Returns the least-squares solution for the measurements and for each draw of them (draws × columns), and its
        relative change with each measurement (columns × measurements)."""
        noise = self._noise()
        system = np.zeros((*noise.shape, columns.shape[2] + len(self.known)))
        mixes, main = len(self.measured), columns.shape[2]
        system[:, :mixes, :main] = columns
        for index, name in enumerate(self.known):
            system[:, :mixes, main + index] = self._known_column(name)
            system[:, mixes + index, main + index] = 1 / (DEVIATION * factor)
        system[:, :mixes] /= (self.errors * self.seconds)[:, None]
        right = np.concatenate((np.exp(self.errors * noise[:, :mixes]) / self.errors, noise[:, mixes:]), axis=1)
        scale = np.linalg.norm(system[0], axis=0)
        system /= scale
        transposed = system.swapaxes(1, 2)
        found = np.linalg.solve(transposed @ system, transposed @ right[:, :, None])[:, :, 0]
        influence = np.linalg.pinv(system[0])[:, :mixes] / (self.errors * np.abs(found[0]).max())
        return found / scale, influence

    def _widened(self, found: Any, columns: Any) -> Any:
        """Returns the draws of the solution, widened by the misfit of the additive model."""
        mixes, main = columns.shape[1:]
        deviations = found[0, main:]
        seconds = columns[0] @ found[0, :main]
        for name, deviation in zip(self.known, deviations, strict=True):
            seconds = seconds + self._known_column(name)[0] * deviation
        residuals = (seconds / self.seconds - 1) / self.errors
        square = (residuals**2).sum() + ((deviations / (DEVIATION * found[0, 0])) ** 2).sum()
        ratio = max(1.0, math.sqrt(square / (mixes - main))) if mixes > main else 1.0
        rng = np.random.default_rng(zlib.crc32(f"{self.option.name}: misfit".encode()))
        misfit = np.exp(MISFIT * ratio * rng.standard_normal(DRAWS + 1))
        misfit[0] = 1
        return (found[0] + ratio * (found - found[0])) * misfit[:, None]

    def _result(self, found: Any, influence: Any) -> OptionFit:
        factor = _positive(found[:, 0]) if self.known else np.ones(DRAWS + 1)
        first = int(bool(self.known))
        costs = {name: CostModel(_positive(found[:, index])) for index, name in enumerate(self.unknown, first)}
        alone = {name: cost * (1 / factor) for name, cost in costs.items()}
        rates = {name: self._rates(name, influence[index]) for index, name in enumerate(self.unknown, first)}
        for index, (name, (cost, _)) in enumerate(self.known.items(), first + len(self.unknown)):
            costs[name] = cost * _positive(found[:, 0] + found[:, index])
            rates[name] = self._rates(name, influence[0] + influence[index])
        checks = tuple(self._checks(costs)) if len(self.measured) > first + len(self.unknown) else ()
        return OptionFit(float(factor[0]), costs, rates, alone, checks)

    def _rates(self, component: str, influence: Any) -> tuple[ThroughputMeasurement, ...]:
        """Returns the measurements from which the seconds of a component follow.

        Args:
            influence: the change of the seconds with each measurement.
        """
        own = [rate for rate, weight in zip(self.measured, influence, strict=True) if abs(weight) > INFLUENCE]
        names = [component] if component in self.known else list(self.known)
        return (*own, *(rate for name in names for rate in self.known[name][1]))

    def _checks(self, costs: Mapping[str, CostModel]) -> Iterator[MeasurementCheck]:
        for index, measurement in enumerate(self.measured):
            seconds = sum(cost.seconds(self.demands[name][index])[0] for name, cost in costs.items())
            yield MeasurementCheck(measurement, float(1 / seconds))

    def _check_use(self) -> None:
        for index in range(len(self.measured)):
            if not any(use[index] for use in self.use.values()):
                raise InvalidInputError(
                    f"measurements of {self.option.name}",
                    f"no request of the mix needs {' or '.join(self.option.components)}: measure another mix",
                )

    def _check_positive(self, found: Any) -> None:
        """Raises `InvalidInputError` if a factor or the seconds of a component are not above 0."""
        names = [f"the factor of {self.option.name}"] * bool(self.known) + self.unknown
        values = [*found[: len(names)], *(found[0] + found[len(names) :])]
        names += [f"the factor of {component}" for component in self.known]
        least = min(range(len(values)), key=values.__getitem__)
        if values[least] <= 0:
            raise InvalidInputError(
                f"measurements of {self.option.name}",
                f"contradict each other: {names[least]} would be {values[least]:.3g}, not above 0: measure again",
            )

    def _check_error(self, component: str, draws: Draws) -> None:
        """Raises `InvalidInputError` if the mixes are so similar that a component's seconds are mostly error."""
        error = 2 * float(np.std(draws[1:]))
        mean = float(np.mean(self.seconds))
        largest = float(self.errors.max())
        if error <= LARGEST_ERROR * mean or error <= AMPLIFICATION * 2 * largest * draws[0]:
            return
        first, second = self._closest_mixes()
        raise InvalidInputError(
            f"measurements of {self.option.name}",
            f"the mixes {_described(first)} and {_described(second)} are too similar to separate {component}: with "
            f"errors of {largest:.0%} it takes {draws[0]:.3g} ± {error:.2g} s: measure {component} alone, or "
            f"{self.option.name} with mixes that differ more, such as one that does not need {component} and one "
            "that always does",
        )

    def _closest_mixes(self) -> tuple[ThroughputMeasurement, ThroughputMeasurement]:
        """Returns the two mixes with the most similar use of the components."""
        use = np.array(list(self.use.values())).T
        pairs = itertools.combinations(range(len(self.measured)), 2)
        first, second = min(pairs, key=lambda pair: float(np.linalg.norm(use[pair[0]] - use[pair[1]])))
        return self.measured[first], self.measured[second]


def _positive(draws: Draws) -> Draws:
    """Returns the draws, with a small fraction of the estimate as their minimum."""
    positive: Draws = np.maximum(draws, SMALLEST * draws[0])
    return positive


def _described(measurement: ThroughputMeasurement) -> str:
    return "(" + ", ".join(f"{share:.0%} {name}" for name, share in measurement.mix.items()) + ")"
