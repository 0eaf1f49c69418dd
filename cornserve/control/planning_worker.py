"""A process that makes one plan: it reads a `PlanningJob` from its input, and writes a `PlanningResult` to its output.

The planner takes seconds of a core, and its libraries need memory: both end with the process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from cornserve.app.graph import AppGraph
from cornserve.app.model_document import model_document
from cornserve.app.plan import AppPlan, PlanCell
from cornserve.app.plan_conversion import PlanConversionError, convert_plan
from cornserve.app.planning import PlanningInputs

if TYPE_CHECKING:
    from cornserve_planner.plan_file.document import PlanFile

NEEDED = 'making plans needs the planner where the controller runs: run pip install "cornserve[planner]"'

NICENESS = 10
"""Executors of other apps have priority over the planner."""

StepSeconds = Mapping[tuple[frozenset[str], str, frozenset[str]], float]
"""The seconds of a replica's time of a request, by the components of its type, the option, and those that it runs."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanningJob(_Message):
    """The plan to make.

    Args:
        graph: the executor graph of the app.
        running: the plan that runs, whose rate for the same workload is computed.
    """

    app: str
    graph: AppGraph
    inputs: PlanningInputs
    running: AppPlan | None = None


class PlanningResult(_Message):
    """The plan, or the error for users.

    Args:
        running_rate: the requests per second of the job's workload that the running plan serves. None if it has other
            options, or if it cannot serve a type.
    """

    plan: AppPlan | None = None
    running_rate: float | None = None
    error: str = ""


def make_plan(job: PlanningJob) -> PlanningResult:
    """Runs the planner."""
    try:
        from cornserve_planner import planning
        from cornserve_planner.errors import PlannerError
        from cornserve_planner.model_document import ModelDocument
        from cornserve_planner.plan_request import PlanRequest
    except ImportError:
        return PlanningResult(error=NEEDED)
    inputs, shares = job.inputs, _shares(job.inputs)
    with TemporaryDirectory(prefix="cornserve-planning-") as folder:
        workload, profile = Path(folder, "workload.json"), Path(folder, "profile.json")
        workload.write_text(json.dumps(_workload(inputs, shares)))
        profile.write_text(json.dumps(inputs.profile))
        try:
            model = ModelDocument.parse(json.dumps(model_document(job.app, job.graph)), source=f"{job.app}.json")
            request = PlanRequest(model, inputs.gpus, rate=inputs.rate, workload=workload, profile=profile)
            file = planning.make_plan(request).file
            plan = _with_gpu_types(convert_plan(file, "the plan"), job.running)
        except (PlannerError, PlanConversionError) as error:
            return PlanningResult(error=str(error))
    running_rate = None if job.running is None else served_rate(job.running, shares, _seconds(file))
    return PlanningResult(plan=plan, running_rate=running_rate)


def served_rate(plan: AppPlan, shares: Mapping[str, float], seconds: StepSeconds) -> float | None:
    """Returns the requests per second of a mix that the running cells serve: the first option is then fully used.

    Requests of a type are divided among the cells that serve it, in proportion to the rates of the cells.
    None if a time is unknown, or if no cell serves a type.
    """
    running = [cell for cell in plan.cells if cell.count]
    used: dict[tuple[int, str], float] = {}
    for name, share in shares.items():
        serving = {cell.gpus: cell.count * cell.rate for cell in running if name in cell.probabilities}
        if share and not serving:
            return None
        for cell in running:
            part = share * serving.get(cell.gpus, 0.0) / (fsum(serving.values()) or 1.0)
            if part and not _add_use(used, plan, name, cell, part, seconds):
                return None
    limits = [
        cell.count * cell.replicas[option] / used[cell.gpus, option]
        for cell in running
        for option in cell.replicas
        if used.get((cell.gpus, option))
    ]
    return min(limits, default=None)


def _add_use(
    used: dict[tuple[int, str], float], plan: AppPlan, name: str, cell: PlanCell, part: float, seconds: StepSeconds
) -> bool:
    """Adds the seconds that a part of all requests needs in cells of a size. Returns whether all of them are known."""
    kind = plan.types[name]
    for path, probability in zip(kind.paths, cell.probabilities[name], strict=True):
        for step in path.steps if probability else []:
            needed = seconds.get((frozenset(kind.components), step.option, frozenset(step.components)))
            if needed is None:
                return False
            key = cell.gpus, step.option
            used[key] = used.get(key, 0.0) + part * probability * needed
    return True


def _seconds(file: PlanFile) -> StepSeconds:
    return {
        (frozenset(kind.components), step.option, frozenset(step.components)): step.seconds
        / file.options[step.option].max_utilization
        for kind in file.types.values()
        for path in kind.paths
        for step in path.steps
    }


def _with_gpu_types(plan: AppPlan, running: AppPlan | None) -> AppPlan:
    """Returns the plan with the types of GPUs of the running plan's options, unless the profile has other ones."""
    known = {} if running is None else {name: option.gpu_type for name, option in running.options.items()}
    options = {
        name: option.model_copy(update={"gpu_type": option.gpu_type or known.get(name)})
        for name, option in plan.options.items()
    }
    return plan.model_copy(update={"options": options})


def _shares(inputs: PlanningInputs) -> dict[str, float]:
    """Returns the shares of the types with the exact sum 1, which the planner requires."""
    total = fsum(kind.share for kind in inputs.workload.values())
    return {name: kind.share / total for name, kind in inputs.workload.items()}


def _workload(inputs: PlanningInputs, shares: Mapping[str, float]) -> dict[str, object]:
    """Returns the workload document."""
    types = {
        name: kind.model_dump(mode="json", exclude_defaults=True) | {"share": shares[name]}
        for name, kind in inputs.workload.items()
    }
    return {"format": "cornserve-planner/workload", "version": 1, "types": types}


def main() -> int:
    """Makes the plan of the job on the standard input."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Solvers may print.
    os.nice(NICENESS)
    job = PlanningJob.model_validate_json(sys.stdin.read())
    with output:
        output.write(make_plan(job).model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
