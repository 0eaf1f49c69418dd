"""A process that makes one plan: it reads a `PlanningJob` from its input, and writes a `PlanningResult` to its output.

The planner takes seconds of a core, and its libraries need memory: both end with the process.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cornserve.app.graph import always_runs_reason
from cornserve.app.model_document import model_document
from cornserve.app.plan import AppPlan
from cornserve.app.planning import PlanningInputs
from cornserve.control.planning.job import PlanningJob, PlanningResult
from cornserve.control.planning.served_rate import StepSeconds, served_rate
from cornserve.task.errors import DefinitionError

if TYPE_CHECKING:
    from cornserve_planner.model.document import ModelDocument
    from cornserve_planner.plan_file.document import PlanFile

NEEDED = 'making plans needs the planner where the controller runs: run pip install "cornserve[planner]"'

NICENESS = 10
"""Executors of other apps have priority over the planner."""


def make_plan(job: PlanningJob) -> PlanningResult:
    """Runs the planner."""
    try:
        from cornserve.control.planning.service_targets import service_targets
        from cornserve_planner.errors import PlannerError
        from cornserve_planner.model.document import ModelDocument
        from cornserve_planner.model.option_changes import OptionChange, OptionChanges
        from cornserve_planner.planning import model_plan
        from cornserve_planner.planning.request import PlanRequest
    except ImportError:
        return PlanningResult(error=NEEDED)
    if job.inputs.profile is None:
        return PlanningResult(error=_refusal(job))
    inputs, shares = job.inputs, _shares(job.inputs)
    for name, kind in inputs.workload.items():
        if always := job.graph.always_run(kind.frequency):
            return PlanningResult(error=f"planning.workload.{name}.frequency: {always_runs_reason(always)}")
    with TemporaryDirectory(prefix="cornserve-planning-") as folder:
        workload, profile = Path(folder, "workload.json"), Path(folder, "profile.json")
        workload.write_text(json.dumps(_workload(inputs, shares)))
        profile.write_text(json.dumps(inputs.profile))
        try:
            model = ModelDocument.parse(json.dumps(model_document(job.app, job.graph)), source=f"{job.app}.json")
            if names := inputs.gpu_types.keys() | inputs.gpu_counts.keys():
                changes = {
                    name: OptionChange(gpu=inputs.gpu_types.get(name), gpus=inputs.gpu_counts.get(name))
                    for name in names
                }
                model = OptionChanges(options=changes).apply(model)
            request = PlanRequest(
                model,
                inputs.gpus,
                inputs.gpus_of or {},
                rate=inputs.rate,
                objective=inputs.objective,
                workload=workload,
                profile=profile,
                targets=service_targets(job.targets, inputs.utilization, inputs.percentile),
                survive=inputs.survive,
                running=_replicas(job.running, model),
            )
            result = model_plan.make_plan(request)
            file = result.file
            plan = AppPlan.of(file.deployable()).with_gpu_types(_gpu_types(job.running))
        except (PlannerError, DefinitionError) as error:
            return PlanningResult(error=str(error))
    running_rate = result.running_goodput
    if running_rate is None and job.running is not None:
        running_rate = served_rate(job.running, shares, _seconds(file))
    return PlanningResult(plan=plan, step_limits=file.step_limits, running_rate=running_rate)


def _refusal(job: PlanningJob) -> str:
    """Returns why the options cannot be measured for a plan, or an empty text."""
    from cornserve.control.planning.input_checks import check_inputs
    from cornserve.control.planning.service_targets import TBT_REASON
    from cornserve_planner.errors import PlannerError
    from cornserve_planner.solve.budget import Budget

    if job.targets is not None and job.targets.tbt_seconds is not None:
        return f"policies.targets.tbt_seconds: {TBT_REASON}"
    try:
        check_inputs(job.app, job.graph, job.inputs.workload, Budget(job.inputs.gpus, job.inputs.gpus_of or {}))
    except PlannerError as error:
        return str(error)
    return ""


def _replicas(running: AppPlan | None, model: ModelDocument) -> dict[str, int]:
    """Returns the replicas of a running plan, or none if the model has other options."""
    replicas: Counter[str] = Counter()
    for cell in () if running is None else running.cells:
        replicas.update({name: cell.count * number for name, number in cell.replicas.items() if cell.count})
    return dict(replicas) if replicas.keys() <= model.options.keys() else {}


def _seconds(file: PlanFile) -> StepSeconds:
    return {
        (frozenset(kind.components), step.option, frozenset(step.components)): step.seconds
        / file.options[step.option].max_utilization
        for kind in file.types.values()
        for path in kind.paths
        for step in path.steps
    }


def _gpu_types(running: AppPlan | None) -> Mapping[str, str | None]:
    """Returns the types of GPUs of the running plan's options, which the plan has unless the profile has other ones."""
    return {} if running is None else {name: option.gpu_type for name, option in running.options.items()}


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
