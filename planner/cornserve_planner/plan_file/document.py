"""The plan file: a self-contained document from which a plan is deployed, adapted and checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import model_validator

from cornserve_plan.plan import Plan
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import FAMILY
from cornserve_planner.model.graph import DeploymentOption, PathStep, path_name
from cornserve_planner.model.problem import GpuType, PlanningProblem, RequestPath
from cornserve_planner.model.solution import PathRate, Solution
from cornserve_planner.plan_file.checks import check_cells, check_losses, check_names, check_paths, check_target
from cornserve_planner.plan_file.parts import (
    PlanFields,
    PlannedCell,
    PlannedGpuType,
    PlannedLimits,
    PlannedOption,
    PlannedPath,
    PlannedType,
    hourly_price,
)
from cornserve_planner.solve.cells import Cell

ADVICE = "make the plan again with `cornserve plan MODEL --save FILE`"


class PlanFile(PlanFields):
    """`format: cornserve-planner/plan`. Raises `InvalidInputError` if a name is unknown or numbers contradict."""

    kind = "plan"
    version = 5

    @model_validator(mode="after")
    def _check_planning(self) -> Self:
        check_names(self)
        check_paths(self)
        check_cells(self, self.solved_cells)
        check_target(self)
        check_losses(self, self.problem)
        return self

    @cached_property
    def problem(self) -> PlanningProblem:
        """The planning problem that the plan solves."""
        return planning_problem(self.options, self.types, self.gpu_types)

    def plan_of(self, cell: PlannedCell) -> Solution:
        """Returns the plan of a cell, at its maximum rate."""
        rates = (
            PathRate(type=name, path=_name(path), rate=cell.rate * kind.share * probability)
            for name, kind in self.types.items()
            for path, probability in zip(kind.paths, cell.probabilities.get(name, ()), strict=False)
            if kind.share and probability
        )
        return Solution(
            rates=tuple(rates),
            gpus=sum(self.options[name].gpus * count for name, count in cell.replicas.items()),
            dollars=self.problem.dollars(cell.replicas),
            capacity=cell.rate,
            **cell.model_dump(include=Solution.model_fields.keys() - {"rates", "capacity", "gpus", "dollars"}),
        )

    @cached_property
    def solved_cells(self) -> tuple[Cell, ...]:
        """The cells with their plans, smallest first."""
        return tuple(Cell(cell.gpus, cell.rate, self.plan_of(cell)) for cell in self.cells)

    @property
    def total_gpus(self) -> dict[str, int]:
        """GPUs of all running cells by type, including idle ones."""
        gpus: dict[str, int] = {}
        for cell in self.cells:
            for name, number in cell.gpus_of.items() if cell.count else ():
                gpus[name] = gpus.get(name, 0) + cell.count * number
        return gpus

    @property
    def dollars(self) -> float | None:
        """Price per hour of these GPUs. None if a price is unknown."""
        return hourly_price(self.gpu_types, self.total_gpus)

    def as_document(self) -> dict[str, Any]:
        """Returns the fields of the file, and the totals of its running cells."""
        totals = {"rate": self.rate, "gpus": self.total_gpus, "dollars": self.dollars}
        return self.model_dump(mode="json") | totals

    def with_limits(self, limits: Mapping[str, PlannedLimits]) -> Self:
        """Returns the plan with limits of the steps of options."""
        options = {name: each.model_copy(update={"limits": limits.get(name)}) for name, each in self.options.items()}
        return self.model_copy(update={"options": options})

    @property
    def step_limits(self) -> dict[str, dict[str, int]]:
        """The limits of the options that have any."""
        return {name: option.limits.model_dump() for name, option in self.options.items() if option.limits is not None}

    def deployable(self) -> Plan:
        """Returns the part by which an app is deployed. Raises `InvalidInputError` if an app cannot be."""
        if self.default_type is None:
            raise InvalidInputError("cells", "no type is served by all of them: make the plan with --whole")
        for name, option in self.options.items():
            if option.task is None:
                raise InvalidInputError(
                    f"options.{name}.task", "is not known: make the plan of an app, with `cornserve plan from APP`"
                )
        used = tuple(cell for cell in self.cells if cell.kept or cell.count)
        return Plan(**{name: getattr(self, name) for name in Plan.model_fields} | {"cells": used})

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Returns the JSON schema of the format. Reading checks more: names, probabilities and rates."""
        fields = cls.model_json_schema()
        header = {"format": {"const": f"{FAMILY}/{cls.kind}"}, "version": {"const": cls.version}}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **fields,
            "properties": header | fields["properties"],
            "required": [*header, *fields["required"]],
        }

    @classmethod
    def _pop_header(cls, fields: Any) -> None:
        if isinstance(fields, dict):
            if fields.get("format") == f"{FAMILY}/proposal":
                raise InvalidInputError("format", f"{fields['format']!r} is not read any more: {ADVICE}")
            is_plan = fields.get("format") == f"{FAMILY}/{cls.kind}"
            if is_plan and fields.get("version") in (1, 2, 3, 4) and fields["version"] is not True:
                raise InvalidInputError("version", f"version {fields['version']} is not read any more: {ADVICE}")
        super()._pop_header(fields)


def planning_problem(
    options: Mapping[str, PlannedOption], types: Mapping[str, PlannedType], gpu_types: Mapping[str, PlannedGpuType]
) -> PlanningProblem:
    """Returns the planning problem that parts of a plan file describe."""
    return PlanningProblem(
        options=tuple(
            DeploymentOption(name, option.components, option.gpus, option.gpu_type) for name, option in options.items()
        ),
        shares={name: kind.share for name, kind in types.items()},
        paths=tuple(_request_path(name, path) for name, kind in types.items() for path in kind.paths),
        gpus={name: GpuType(name, gpu.memory, gpu.price) for name, gpu in gpu_types.items()},
        memory={name: option.memory for name, option in options.items() if option.memory is not None},
        max_utilization={
            name: option.max_utilization for name, option in options.items() if option.max_utilization < 1
        },
    )


def _request_path(kind: str, path: PlannedPath) -> RequestPath:
    seconds: dict[str, float] = {}
    for step in path.steps:
        seconds[step.option] = seconds.get(step.option, 0.0) + step.seconds
    steps = tuple(PathStep(step.option, step.components) for step in path.steps)
    return RequestPath(kind, path_name(steps), seconds, steps)


def _name(path: PlannedPath) -> str:
    return path_name(PathStep(step.option, step.components) for step in path.steps)
