"""Converts plans of the planner to plans of apps."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cornserve.app.plan import AppPlan, PlanCell, PlanInput, PlanOption, PlanPath, PlanStep, PlanType
from cornserve.validation_errors import describe_all

if TYPE_CHECKING:
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.plan_file.parts import PlannedCell, PlannedOption, PlannedType


class PlanConversionError(ValueError):
    """A plan of the planner cannot be deployed. The message is for users."""


def convert_plan(file: PlanFile, name: str) -> AppPlan:
    """Returns the deployable part of a plan file. `name` names it in errors. Raises `PlanConversionError`."""
    if len(file.models) > 1:
        raise PlanConversionError(f"{name}: models: the plan serves {', '.join(file.models)}: plan each app alone")
    if file.cluster is not None:
        raise PlanConversionError(f"{name}: cluster: the plan places replicas on nodes: make it without --nodes")
    cells = [cell for cell in file.cells if cell.kept or cell.count]
    [model] = file.models.values()
    try:
        return AppPlan(
            options={option: _option(name, option, entry) for option, entry in file.options.items()},
            types={kind: _type(entry) for kind, entry in file.types.items()},
            default_type=model.default_type or _largest_type(name, file, cells),
            cells=[_cell(file, cell, is_shared=file.counts == {cell.size: 1}) for cell in cells],
            target=file.target,
            planner=file.provenance.planner,
            inputs=[PlanInput(kind=each.kind, file=each.file, sha256=each.sha256) for each in file.provenance.inputs],
        )
    except ValidationError as error:
        raise PlanConversionError(f"{name}: {describe_all(error.errors())}") from error


def _option(file: str, name: str, option: PlannedOption) -> PlanOption:
    if option.executor is None:
        raise PlanConversionError(
            f"{file}: options.{name}.executor: is not known: make the plan of an app, with `cornserve plan --from APP`"
        )
    return PlanOption(
        task=option.executor.task, settings=option.executor.settings, gpus=option.gpus, gpu_type=option.gpu
    )


def _type(kind: PlannedType) -> PlanType:
    paths = [
        PlanPath(steps=[PlanStep(option=step.option, components=list(step.components)) for step in path.steps])
        for path in kind.paths
    ]
    return PlanType(components=list(kind.components), share=kind.share, paths=paths)


def _largest_type(name: str, file: PlanFile, cells: list[PlannedCell]) -> str:
    """Returns the type with the most components that all cells serve: other requests are most likely a part of it."""
    served = [kind for kind in file.types if all(cell.probabilities[kind] for cell in cells)]
    if not served:
        raise PlanConversionError(f"{name}: cells: no type is served by all of them: make the plan with --whole")
    return max(served, key=lambda kind: (len(file.types[kind].components), file.types[kind].share))


def _cell(file: PlanFile, cell: PlannedCell, *, is_shared: bool) -> PlanCell:
    return PlanCell(
        gpus=cell.size,
        count=cell.count,
        is_shared=is_shared,
        rate=cell.rate,
        replicas=cell.replicas,
        loads={option: _load(file, cell, option) for option in cell.replicas},
        probabilities={kind: list(each) for kind, each in cell.probabilities.items() if each},
    )


def _load(file: PlanFile, cell: PlannedCell, option: str) -> float:
    """Returns the replicas of the option that the cell needs at its rate, with the planned headroom.

    A cell that survives the loss of a replica needs all of them.
    """
    replicas = float(cell.replicas[option])
    if cell.rate_after_loss is not None:
        return replicas
    seconds = fsum(
        kind.share * probability * step.seconds
        for name, kind in file.types.items()
        for path, probability in zip(kind.paths, cell.probabilities[name], strict=False)
        for step in path.steps
        if step.option == option
    )
    return min(cell.rate * seconds / file.options[option].max_utilization, replicas)
