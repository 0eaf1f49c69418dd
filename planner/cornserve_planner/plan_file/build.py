"""Builds the plan file of a search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.model.document import ExecutorTask
from cornserve_planner.model.graph import PathStep, RequestType
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.solution import Solution
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import (
    ANY_GPU,
    PlannedCell,
    PlannedComponent,
    PlannedGpuType,
    PlannedModalities,
    PlannedModel,
    PlannedOption,
    PlannedPath,
    PlannedStep,
    PlannedType,
    gpus_by_type,
    hourly_price,
    loads,
    mean_seconds,
)
from cornserve_planner.plan_file.provenance import PlanOrigin
from cornserve_planner.solve.capacity import ReplicaCapacity
from cornserve_planner.solve.cells import Cell, efficient_cells


@dataclass(frozen=True)
class PlannedParts:
    """The parts of a plan file that describe the problem."""

    models: Mapping[str, PlannedModel]
    components: Mapping[str, PlannedComponent]
    gpu_types: Mapping[str, PlannedGpuType]
    options: Mapping[str, PlannedOption]
    types: Mapping[str, PlannedType]


def planned_parts(inputs: PlanInputs, late: Collection[str] = ()) -> PlannedParts:
    """
    Args:
        late: the options whose steps have late binding where they read the tensors of one other step.

    Raises `InvalidInputError` for an option without such a step.
    """
    known = inputs.model.modalities
    modalities = None if known is None else PlannedModalities(**known.model_dump())
    return PlannedParts(
        models={inputs.model.name: PlannedModel(modalities=modalities)},
        components={c.name: PlannedComponent(after=c.after) for c in inputs.graph.components},
        gpu_types={
            name: PlannedGpuType(memory=gpu.memory, price=gpu.price) for name, gpu in inputs.problem.gpus.items()
        },
        options=_options(inputs),
        types=_with_late_binding(_types(inputs), inputs, late),
    )


def plan_file(
    parts: PlannedParts,
    problem: PlanningProblem,
    cells: Iterable[Cell],
    counts: Mapping[int, int],
    target: float | None,
    origin: PlanOrigin,
) -> PlanFile:
    """
    Args:
        cells: all cells that were solved.
        counts: the number of running cells, by GPUs of a cell.
    """
    usable = tuple(cell for cell in cells if cell.plan is not None)
    kept = {cell.gpus for cell in efficient_cells(usable)}
    found = tuple(
        _cell(problem, parts, cell, cell.plan, counts.get(cell.gpus, 0), cell.gpus in kept)
        for cell in usable
        if cell.plan is not None
    )
    return PlanFile(
        models=dict(parts.models),
        components=dict(parts.components),
        gpu_types=dict(parts.gpu_types),
        options=dict(parts.options),
        types=dict(parts.types),
        cells=found,
        default_type=_default_type(parts, found),
        target=target,
        planner=origin.planner,
        inputs=origin.inputs,
        provenance=origin.provenance,
    )


def _default_type(parts: PlannedParts, cells: Iterable[PlannedCell]) -> str | None:
    """Returns the type with the most components that all cells serve: other requests are most likely a part of it."""
    used = [cell for cell in cells if cell.kept or cell.count]
    served = [name for name in parts.types if all(name in cell.probabilities for cell in used)]
    if not served:
        return None
    return max(served, key=lambda name: (len(parts.types[name].components), parts.types[name].share))


def _options(inputs: PlanInputs) -> dict[str, PlannedOption]:
    problem = inputs.problem
    return {
        option.name: PlannedOption(
            components=option.components,
            **_executor(inputs.model.options[option.profiled_as].executor),
            gpu_type=option.gpu,
            gpus=option.gpus,
            batch=inputs.batch.get(option.name),
            memory=problem.memory.get(option.name),
            max_utilization=problem.max_utilization.get(option.name, 1.0),
            startup=inputs.startup.get(option.name),
            limits=None,
        )
        for option in inputs.graph.options
    }


def _executor(executor: ExecutorTask | None) -> dict[str, Any]:
    return {"task": None, "settings": {}} if executor is None else executor.model_dump()


def _types(inputs: PlanInputs) -> dict[str, PlannedType]:
    paths: dict[str, list[RequestPath]] = {}
    for path in inputs.problem.paths:
        paths.setdefault(path.type, []).append(path)
    return {
        kind.name: PlannedType(
            model=inputs.model.name,
            components=tuple(c.name for c in inputs.graph.components if c.name in kind.components),
            share=share,
            paths=tuple(
                PlannedPath(steps=tuple(_step(inputs, kind, step) for step in path.steps)) for path in paths[kind.name]
            ),
        )
        for kind, share in inputs.workload.shares.items()
    }


def _step(inputs: PlanInputs, kind: RequestType, step: PathStep) -> PlannedStep:
    time = inputs.time(kind, step)
    return PlannedStep(
        option=step.option,
        components=step.role,
        binding=None,
        seconds=time.seconds,
        low=time.low,
        high=time.high,
        tag=time.tag,
    )


def _with_late_binding(
    types: Mapping[str, PlannedType], inputs: PlanInputs, late: Collection[str]
) -> dict[str, PlannedType]:
    bound: set[str] = set()

    def with_binding(path: PlannedPath) -> PlannedPath:
        edges = inputs.graph.transfers(tuple(PathStep(step.option, step.components) for step in path.steps))
        readers = [consumer for _, consumer in edges]
        found = {option for option in late if readers.count(option) == 1}
        bound.update(found)
        steps = (step.model_copy(update={"binding": "late"} if step.option in found else {}) for step in path.steps)
        return path.model_copy(update={"steps": tuple(steps)})

    changed = {
        name: kind.model_copy(update={"paths": tuple(map(with_binding, kind.paths))}) for name, kind in types.items()
    }
    for name in late:
        if name not in bound:
            raise InvalidInputError("--late-binding", f"no path of {inputs.model.name} has {name!r} after one other")
    return changed


def _cell(
    problem: PlanningProblem, parts: PlannedParts, cell: Cell, plan: Solution, count: int, kept: bool
) -> PlannedCell:
    options = parts.options
    gpus = used = gpus_by_type(options, plan.replicas)
    if len({option.gpu_type for option in options.values()}) == 1:
        gpus = {next(iter(options.values())).gpu_type or ANY_GPU: cell.gpus}
    probabilities = {name: found for name in parts.types if (found := _probabilities(problem, plan, name, options))}
    seconds = mean_seconds(parts.types, probabilities)
    return PlannedCell(
        gpus=sum(gpus.values()),
        count=count,
        kept=kept,
        gpus_of=gpus,
        idle={name: idle for name, count in gpus.items() if (idle := count - used[name])},
        dollars=hourly_price(parts.gpu_types, gpus),
        probabilities=probabilities,
        rate=plan.capacity,
        loads=dict(plan.replicas) if plan.survives else loads(options, plan.replicas, plan.capacity, seconds),
        rate_after_loss=ReplicaCapacity.of(problem, plan.replicas, survive=True).rate if plan.survives else None,
        **plan.model_dump(exclude={"rates", "rate", "capacity", "gpus", "dollars", "survives"}),
    )


def _probabilities(
    problem: PlanningProblem, plan: Solution, kind: str, options: Mapping[str, PlannedOption]
) -> tuple[float, ...]:
    """Returns the probability of each path of a type. A type without requests takes the path with the fewest
    GPU-seconds."""
    paths = [path for path in problem.paths if path.type == kind]
    if planned := plan.shares_of(kind):
        return tuple(planned.get(path.name, 0.0) for path in paths)
    usable = [index for index, path in enumerate(paths) if path.seconds.keys() <= plan.replicas.keys()]
    if not usable:
        return ()
    costs = [sum(options[name].gpus * each for name, each in path.seconds.items()) for path in paths]
    cheapest = min(usable, key=costs.__getitem__)
    return tuple(float(index == cheapest) for index in range(len(paths)))
