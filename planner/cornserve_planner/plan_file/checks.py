"""Verifies that the names of a plan file exist and that its numbers agree."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import DeclaredPath, DeploymentOption, ExecutorGraph, ModelComponent, RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Objective
from cornserve_planner.plan_file.parts import (
    PlanFields,
    PlannedCell,
    PlannedType,
    gpus_by_type,
    hourly_price,
    largest_loss,
    loads,
    mean_seconds,
)
from cornserve_planner.solve.capacity import ReplicaCapacity
from cornserve_planner.solve.cells import Cell, efficient_cells

TOLERANCE = 1e-6
"""Relative tolerance of numbers that follow from others."""
TARGET_TOLERANCE = 2e-5
"""Relative tolerance of solvers, with which a plan serves its target."""


def check_names(file: PlanFields) -> None:
    """Checks that every name refers to a part of the file."""
    for name, option in file.options.items():
        if option.gpu_type is not None:
            _require_known(f"options.{name}.gpu_type", option.gpu_type, file.gpu_types, "a GPU type")
    for name, model in file.models.items():
        for component in sorted(model.modalities.components if model.modalities else ()):
            _require_known(f"models.{name}.modalities", component, file.components, "a component")
    for name, kind in file.types.items():
        _require_known(f"types.{name}.model", kind.model, file.models, "a model")
        modalities = file.models[kind.model].modalities
        if modalities and (unknown := sorted(set(kind.components) - modalities.components)):
            raise InvalidInputError(
                f"models.{kind.model}.modalities",
                f"need none of {', '.join(unknown)}, which type {name!r} has: add them",
            )
        for index, path in enumerate(kind.paths):
            for number, step in enumerate(path.steps):
                where = f"types.{name}.paths.{index}.steps.{number}"
                if not step.low * (1 - TOLERANCE) <= step.seconds <= step.high * (1 + TOLERANCE):
                    raise InvalidInputError(
                        f"{where}.seconds", f"are {step.seconds:g}, not between {step.low:g} and {step.high:g}"
                    )
    for where, names in (
        ("rates", [rate.option for rate in file.provenance.rates]),
        ("factors", file.provenance.factors),
    ):
        for name in names:
            _require_known(f"provenance.{where}", name, file.options, "an option")


def check_paths(file: PlanFields) -> None:
    """Checks that every path runs each component of its type once, after the components whose output it consumes."""
    sequences = dict.fromkeys(
        tuple(step.option for step in path.steps) for kind in file.types.values() for path in kind.paths
    )
    graph = ExecutorGraph(
        tuple(ModelComponent(name, component.after) for name, component in file.components.items()),
        tuple(
            DeploymentOption(n, option.components, option.gpus, option.gpu_type) for n, option in file.options.items()
        ),
        tuple(DeclaredPath(options) for options in sequences),
    )
    for name, kind in file.types.items():
        paths = graph.valid_paths(RequestType(name, frozenset(kind.components)))
        valid = {tuple((step.option, frozenset(step.role)) for step in path.steps) for path in paths}
        seen: set[tuple[tuple[str, frozenset[str]], ...]] = set()
        for index, path in enumerate(kind.paths):
            steps = tuple((step.option, frozenset(step.components)) for step in path.steps)
            if steps in seen:
                raise InvalidInputError(f"types.{name}.paths.{index}", "is given twice: remove one of them")
            if steps not in valid:
                raise InvalidInputError(
                    f"types.{name}.paths.{index}.steps",
                    "must run each component of the type once, on the first option of the path that has it and after "
                    "the components whose output it consumes: correct the options or components",
                )
            seen.add(steps)


def check_cells(file: PlanFields, cells: tuple[Cell, ...]) -> None:
    """Checks the probabilities and numbers of every cell."""
    for index, cell in enumerate(file.cells):
        _check_gpus(file, cell, f"cells.{index}")
        for name, kind in file.types.items():
            _check_probabilities(kind, cell, name, f"cells.{index}.probabilities.{name}")
        _check_rate(file, cell, f"cells.{index}")
        _check_bounds(cell, f"cells.{index}")
    kept = {cell.gpus for cell in efficient_cells(cells)}
    for index, cell in enumerate(file.cells):
        if cell.kept != (cell.gpus in kept):
            more = "more" if cell.gpus in kept else "no more"
            raise InvalidInputError(
                f"cells.{index}.kept", f"is {cell.kept}, but the cell serves {more} than smaller ones on the same GPUs"
            )


def check_target(file: PlanFields) -> None:
    served = file.rate - largest_loss(cell for cell in file.cells if cell.count)
    if file.target is not None and served < file.target * (1 - TARGET_TOLERANCE):
        raise InvalidInputError("target", f"is {file.target:g}, but the running cells serve {served:g} requests/s")


def check_losses(file: PlanFields, problem: PlanningProblem) -> None:
    """Checks the rates after the loss of a replica."""
    for index, cell in enumerate(file.cells):
        if cell.rate_after_loss is not None:
            found = ReplicaCapacity.of(problem, dict(cell.replicas), survive=True).rate
            where = f"cells.{index}.rate_after_loss"
            _require_close(where, cell.rate_after_loss, found, "after the loss of a replica, the others serve")


def _check_gpus(file: PlanFields, cell: PlannedCell, where: str) -> None:
    used = gpus_by_type(file.options, cell.replicas)
    for name, idle in cell.idle.items():
        used[name] = used.get(name, 0) + idle
    if cell.gpus_of != used:
        raise InvalidInputError(f"{where}.gpus_of", f"are {cell.gpus_of}, but the replicas and idle GPUs are {used}")
    if cell.gpus != (total := sum(used.values())):
        raise InvalidInputError(f"{where}.gpus", f"are {cell.gpus}, but {cell.gpus_of} are {total}")
    for name in cell.replicas:
        option = file.options[name]
        memory = file.gpu_types[option.gpu_type].memory if option.gpu_type else None
        if option.memory is not None and memory is not None and option.memory > memory:
            raise InvalidInputError(
                f"options.{name}.memory", f"is {option.memory:g} bytes, but a {option.gpu_type} has {memory:g}"
            )
    _require_close(f"{where}.dollars", cell.dollars, hourly_price(file.gpu_types, cell.gpus_of), "its GPUs cost")


def _check_probabilities(kind: PlannedType, cell: PlannedCell, name: str, where: str) -> None:
    usable = [all(step.option in cell.replicas for step in path.steps) for path in kind.paths]
    if name not in cell.probabilities:
        if any(usable):
            raise InvalidInputError(where, "is missing, but the cell has a path for this type: give its probabilities")
        if kind.share:
            raise InvalidInputError(where, f"is missing, but {kind.share:.3g} of the requests have this type")

    elif abs((total := math.fsum(cell.probabilities[name])) - 1) > TOLERANCE:
        raise InvalidInputError(where, f"add up to {total:.6g}, not to 1: correct them")


def _check_rate(file: PlanFields, cell: PlannedCell, where: str) -> None:
    needed = mean_seconds(file.types, cell.probabilities)
    limits = {
        name: cell.replicas[name] * file.options[name].max_utilization / seconds for name, seconds in needed.items()
    }
    limiting = min(limits, key=limits.__getitem__)
    _require_close(f"{where}.rate", cell.rate, limits[limiting], f"the replicas of {limiting} limit it to")
    expected = cell.replicas if cell.rate_after_loss else loads(file.options, cell.replicas, cell.rate, needed)
    for name in cell.replicas:
        _require_close(f"{where}.loads.{name}", cell.loads.get(name), expected[name], "its requests need")
    values = {
        Objective.RATE: cell.rate_after_loss or cell.rate,
        Objective.GPUS: float(cell.gpus),
        Objective.DOLLARS: cell.dollars,
    }
    _require_close(f"{where}.value", cell.value, values[cell.objective], f"the objective {cell.objective!r} gives")


def _check_bounds(cell: PlannedCell, where: str) -> None:
    """Checks that the value is not better than the bound, and the bound not better than the relaxation."""
    if cell.proven:
        _require_close(f"{where}.bound", cell.bound, cell.value, "the plan is proven optimal, with a value of")
    for first, second in (("value", "bound"), ("bound", "relaxation")):
        value, limit = getattr(cell, first), getattr(cell, second)
        if (value - limit if cell.objective is Objective.RATE else limit - value) > TOLERANCE * max(value, limit):
            raise InvalidInputError(
                f"{where}.{second}", f"is {limit:.7g}, but no plan is better, and the {first} is {value:.7g}"
            )


def _require_known(where: str, name: str, known: Iterable[str], what: str) -> None:
    known = sorted(known)
    if name not in known:
        raise InvalidInputError(where, f"{name!r} is not {what} of the file: use one of {', '.join(known)}")


def _require_close(where: str, found: float | None, expected: float | None, why: str) -> None:
    if (found is None) != (expected is None) or (
        found is not None and expected is not None and not math.isclose(found, expected, rel_tol=TOLERANCE)
    ):
        raise InvalidInputError(where, f"is {_number(found)}, but {why} {_number(expected)}")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.7g}"
