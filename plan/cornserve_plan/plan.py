"""The plan: cells, their replicas, and the probabilities of paths [C §4.3]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum
from typing import Final, Self

from pydantic import Field, JsonValue, model_validator

from cornserve_plan.fields import Binding, Count, Fraction, Name, Names, NonNegative, PlanPart, Positive, PositiveCount
from cornserve_policies.mixture import efficient_rates

SHARES_TOLERANCE: Final = 1e-3
"""Tolerance of shares, probabilities and loads, which solvers compute."""


class PlanOption(PlanPart):
    """A deployment option: a unit task with its settings. Options with equal tasks and settings share replicas."""

    task: Name | None = None
    """The name of the unit task's class. None if the plan is not made of an app."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """The fields of the unit task."""
    gpus: PositiveCount
    """Number of GPUs of a replica; on a machine without GPUs, the number of CPU slots."""
    gpu_type: Name | None = None
    """The type of these GPUs or slots. By default, any."""


class PlanStep(PlanPart):
    """A step of a path: an option, and the components that it runs here."""

    option: Name
    """The name of the option."""
    components: Names
    """The components."""
    binding: Binding | None = None
    """The binding of the step, if it reads the tensors of one other step: see `policies.binding`, which is the
    default."""


class PlanPath(PlanPart):
    """A way to serve a request type: its steps in the order of the data."""

    steps: tuple[PlanStep, ...] = Field(min_length=1)
    """The steps."""


class PlanType(PlanPart):
    """A request type: the requests that need the same components."""

    components: Names
    """The components that its requests need."""
    share: Fraction
    """The planned share of all requests."""
    paths: tuple[PlanPath, ...] = Field(min_length=1)
    """The ways to serve it."""


class PlanCell(PlanPart):
    """A cell: replicas that serve requests together, independently of other cells."""

    gpus: PositiveCount
    """GPUs of the cell, which identify it in the plan."""
    count: Count
    """The number of these cells that run."""
    rate: Positive
    """Requests per second that the cell serves."""
    replicas: Mapping[Name, PositiveCount] = Field(min_length=1)
    """The replicas of each option."""
    loads: Mapping[Name, NonNegative]
    """The replicas that each option would need at this rate if they could be divided."""
    probabilities: Mapping[Name, tuple[Fraction, ...]]
    """The probability of each path, by request type. A type that the cell cannot serve is absent."""

    def with_count(self, count: int) -> Self:
        """Returns the cell with another number of these that run."""
        return self.model_copy(update={"count": count})

    def uses(self, plan: Plan) -> Iterable[tuple[str, PlanPath]]:
        """Yields the paths that receive requests in this cell, with their types."""
        for name, probabilities in self.probabilities.items():
            for path, probability in zip(plan.types[name].paths, probabilities, strict=True):
                if probability:
                    yield name, path


class PlanInput(PlanPart):
    """A file from which a plan was made, or the app."""

    kind: Name
    """The kind of content, such as `profile`."""
    file: Name
    """The name of the file."""
    sha256: str = Field(pattern="^[0-9a-f]{64}$", max_length=64)
    """The digest of the file."""


class Plan(PlanPart):
    """A plan. Raises `ValueError` if a name is unknown or numbers contradict."""

    options: Mapping[Name, PlanOption] = Field(min_length=1)
    """Deployment options, by name."""
    types: Mapping[Name, PlanType] = Field(min_length=1)
    """Request types, by name."""
    default_type: Name | None
    """The type by which requests are routed whose components are not those of any type. None to refuse them."""
    cells: tuple[PlanCell, ...] = Field(min_length=1)
    """The cells that run or that later changes of the load may start, smallest first."""
    target: NonNegative | None = None
    """Requests per second for which the running cells were chosen. By default, a number of GPUs determines them."""
    planner: Name
    """The version of the planner."""
    inputs: tuple[PlanInput, ...] = ()
    """The files from which the plan was made."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_types(self)
        for index, cell in enumerate(self.cells):
            _check_cell(self, cell, f"cells.{index}")
        sizes = [cell.gpus for cell in self.cells]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"cells: have {', '.join(map(str, sizes))} GPUs: give each size once, smallest first")
        return self

    @property
    def counts(self) -> dict[int, int]:
        """The number of running cells, by GPUs of a cell."""
        return {cell.gpus: cell.count for cell in self.cells if cell.count}

    @property
    def efficient_rates(self) -> dict[int, float]:
        """The rates of the cells that mixtures use, by GPUs of a cell."""
        return efficient_rates({cell.gpus: cell.rate for cell in self.cells})

    @property
    def rate(self) -> float:
        """Requests per second that all running cells serve together."""
        return fsum(cell.count * cell.rate for cell in self.cells)

    @property
    def target_share(self) -> float:
        """The share of the running cells' rate for which they were chosen. 1 without a target."""
        return 1.0 if self.target is None else min(self.target / self.rate, 1.0)

    @property
    def gpus(self) -> int:
        """GPUs of all running replicas."""
        used = self.used_gpus
        return sum(used[size] * count for size, count in self.counts.items())

    @property
    def gpus_of(self) -> dict[str, int]:
        """GPUs of all running replicas by type, for the options that have one."""
        used: dict[str, int] = {}
        for cell in self.cells:
            for name, count in cell.replicas.items() if cell.count else ():
                option = self.options[name]
                if option.gpu_type is not None:
                    used[option.gpu_type] = used.get(option.gpu_type, 0) + option.gpus * count * cell.count
        return used

    @property
    def used_gpus(self) -> dict[int, int]:
        """The GPUs of the replicas of a cell, by GPUs of the cell."""
        return {
            cell.gpus: sum(self.options[name].gpus * count for name, count in cell.replicas.items())
            for cell in self.cells
        }

    def with_gpu_types(self, types: Mapping[str, str | None]) -> Self:
        """Returns the plan with types of GPUs or slots for options, by name, unless the options have one."""
        options = {
            name: option.model_copy(update={"gpu_type": option.gpu_type or types.get(name)})
            for name, option in self.options.items()
        }
        return self.model_copy(update={"options": options})

    def with_counts(self, counts: Mapping[int, int], target: float | None) -> Self:
        """Returns the plan that runs other numbers of the same cells, by GPUs of a cell."""
        cells = tuple(cell.with_count(counts.get(cell.gpus, 0)).model_dump() for cell in self.cells)
        return type(self).model_validate({**self.model_dump(), "cells": cells, "target": target})


def describe_cells(counts: Mapping[int, int]) -> str:
    """Returns the cells for users, such as `2 × 4 GPUs, 1 × 1 GPU`. `counts`: by GPUs of a cell."""
    return ", ".join(
        f"{count} × {size} GPU{'' if size == 1 else 's'}" for size, count in sorted(counts.items(), reverse=True)
    )


def _check_types(plan: Plan) -> None:
    if plan.default_type not in (None, *plan.types):
        raise ValueError(f"default_type: {plan.default_type!r} is not a type of the plan: {', '.join(plan.types)}")
    for name, kind in plan.types.items():
        for index, path in enumerate(kind.paths):
            _check_path(plan, kind, path, f"types.{name}.paths.{index}")
    total = fsum(kind.share for kind in plan.types.values())
    if abs(total - 1) > SHARES_TOLERANCE:
        raise ValueError(f"types: their shares add up to {total:g}, not 1")


def _check_path(plan: Plan, kind: PlanType, path: PlanPath, where: str) -> None:
    run = [component for step in path.steps for component in step.components]
    if sorted(run) != sorted(kind.components):
        raise ValueError(f"{where}: runs {', '.join(run)}, but the type needs {', '.join(kind.components)} once each")
    for step in path.steps:
        if step.option not in plan.options:
            raise ValueError(f"{where}: {step.option!r} is not an option of the plan: {', '.join(plan.options)}")
    if path.steps[0].binding is not None:
        raise ValueError(f"{where}.steps.0.binding: the first step reads no other one: remove it")


def _check_cell(plan: Plan, cell: PlanCell, where: str) -> None:
    for field, names, known in (
        ("replicas", cell.replicas, plan.options),
        ("loads", cell.loads, cell.replicas),
        ("probabilities", cell.probabilities, plan.types),
    ):
        for name in names:
            if name not in known:
                raise ValueError(f"{where}.{field}: {name!r} is not known: use {', '.join(known)}")
    for name, load in cell.loads.items():
        if load > cell.replicas[name] * (1 + SHARES_TOLERANCE):
            raise ValueError(f"{where}.loads.{name}: {load:g} is more than its {cell.replicas[name]} replicas")
    for name, probabilities in cell.probabilities.items():
        paths = len(plan.types[name].paths)
        if len(probabilities) != paths:
            raise ValueError(
                f"{where}.probabilities.{name}: has {len(probabilities)} numbers, not one per path: {paths}"
            )
        if abs(fsum(probabilities) - 1) > SHARES_TOLERANCE:
            raise ValueError(f"{where}.probabilities.{name}: add up to {fsum(probabilities):g}, not 1")
    for name, path in cell.uses(plan):
        for step in path.steps:
            if step.option not in cell.replicas:
                raise ValueError(f"{where}: a path of type {name!r} uses {step.option!r}, which has no replicas")
