"""Cost models: the seconds of a component as a linear function of the sizes of a request.

The seconds are a fixed part plus, for each size, a part that is proportional to it. All parts are fitted to
measurements at several sizes by non-negative least squares, because no request is faster for being larger.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import RequestType
from cornserve_planner.requests.request_sizes import RequestSizes, SizeUnit

Draws: TypeAlias = Any
"""A numpy array with an estimate, followed by random draws of its distribution."""

MOST_UNITS = 6
"""The maximum number of sizes on which a component's time depends. The fit takes exponential time in it."""

INDEPENDENT = 1e-6
"""Measurements separate the parts if their smallest singular value is at least this fraction of the largest."""


@dataclass(frozen=True)
class CostModel:
    """The seconds of a component.

    Args:
        fixed: seconds of each request.
        per_unit: seconds per unit of each size.
    """

    fixed: Draws
    per_unit: Mapping[SizeUnit, Draws] = field(default_factory=dict)

    def __mul__(self, factor: Draws) -> CostModel:
        return CostModel(self.fixed * factor, {unit: seconds * factor for unit, seconds in self.per_unit.items()})

    def seconds(self, demand: ComponentDemand) -> Draws:
        """Returns the seconds of the mean request. Raises `InvalidInputError` if a size is unknown."""
        return demand.share * self.fixed + sum(seconds * demand.of(unit) for unit, seconds in self.per_unit.items())


@dataclass(frozen=True, slots=True)
class ComponentDemand:
    """The use of a component by the mean request of a mix.

    Args:
        component, where: for errors.
        share: how many times the mean request runs the component.
        sizes: by size, the mean of these requests times their share.
    """

    component: str
    where: str
    share: float
    sizes: Mapping[SizeUnit, float]

    @classmethod
    def of_mix(cls, component: str, where: str, parts: Iterable[tuple[float, RequestSizes]]) -> ComponentDemand:
        """Returns the demand of requests that need a component, from their shares and their mean sizes."""
        kept = [(share, sizes) for share, sizes in parts if share]
        known = [unit for unit in (kept[0][1] if kept else {}) if all(unit in sizes for _, sizes in kept)]
        totals = {unit: math.fsum(share * sizes[unit] for share, sizes in kept) for unit in known}
        return cls(component, where, math.fsum(share for share, _ in kept), totals)

    def of(self, unit: SizeUnit) -> float:
        if not self.share:
            return 0.0
        if unit not in self.sizes:
            raise InvalidInputError(
                self.where, f"the profile's seconds of {self.component} depend on {unit}, which is not stated: state it"
            )
        return self.sizes[unit]


@dataclass(frozen=True)
class TypeDemands:
    """Request types by name, with the known mean sizes of their requests."""

    types: Mapping[str, RequestType]
    sizes: Mapping[str, RequestSizes] = field(default_factory=dict)

    def of(self, component: str, where: str, mix: Mapping[str, float]) -> ComponentDemand:
        """Returns the use of a component by the mean request of a mix."""
        parts = [
            (share * self.types[name].frequency.get(component, 1.0), self.sizes.get(name, {}))
            for name, share in mix.items()
            if component in self.types[name].components
        ]
        return ComponentDemand.of_mix(component, where, parts)


def varying_units(demands: Sequence[ComponentDemand]) -> tuple[SizeUnit, ...]:
    """Returns the sizes that differ between measurements. Constant sizes are a part of the fixed seconds.

    Raises `InvalidInputError` if not all measurements state the same sizes.
    """
    stated = {unit for demand in demands for unit in demand.sizes}
    for demand in demands:
        if missing := sorted(stated - demand.sizes.keys()):
            raise InvalidInputError(demand.where, f"{missing[0]} is stated for some mixes only: state it for all mixes")
    means = {unit: [demand.sizes[unit] / demand.share for demand in demands] for unit in sorted(stated)}
    return tuple(unit for unit, found in means.items() if max(found) - min(found) > INDEPENDENT * max(found))


def fit_cost(demands: Sequence[ComponentDemand], units: Sequence[SizeUnit], seconds: Draws, errors: Any) -> CostModel:
    """Fits a cost model to measurements.

    Args:
        seconds: draws × measurements, of the mean request of each measurement.
        errors: relative standard errors of the measurements.

    Raises `InvalidInputError` if the measurements do not separate the sizes.
    """
    weights = 1 / (errors * seconds[0])
    matrix = np.array([[demand.share, *(demand.of(unit) for unit in units)] for demand in demands])
    matrix *= weights[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    columns = 1 + len(units)
    few = len(demands) < columns or np.linalg.matrix_rank(matrix / scale, tol=INDEPENDENT) < columns
    if few or len(units) > MOST_UNITS:
        raise InvalidInputError(
            demands[0].where,
            f"{len(demands)} measurements do not separate the seconds per {', '.join(units)}: measure at more sizes "
            f"that vary independently, or state fewer sizes (at most {MOST_UNITS})",
        )
    parts = non_negative_least_squares(matrix / scale, (seconds * weights).T) / scale[:, None]
    return CostModel(parts[0], dict(zip(units, parts[1:], strict=True)))


def non_negative_least_squares(matrix: Any, right: Any) -> Any:
    """Returns the x >= 0 that minimizes |matrix · x - right|, for each column of `right`.

    The solution is the unconstrained one for the columns of the matrix with x > 0, so all subsets of columns are tried.
    """
    best = np.zeros((matrix.shape[1], right.shape[1]))
    least = (right**2).sum(axis=0)
    for count in range(1, matrix.shape[1] + 1):
        for subset in itertools.combinations(range(matrix.shape[1]), count):
            columns = matrix[:, subset]
            found = np.linalg.pinv(columns) @ right
            residual = ((right - columns @ found) ** 2).sum(axis=0)
            better = (found >= 0).all(axis=0) & (residual < least)
            best[:, better] = 0
            best[np.ix_(subset, better)] = found[:, better]
            least = np.where(better, residual, least)
    return best
