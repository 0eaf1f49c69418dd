"""Plans the target of `cornserve deploy` for a number of GPUs or a rate."""

from __future__ import annotations

from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cornserve.cli.changed_options import option_fields, with_options
from cornserve.cli.console import CliError, stderr
from cornserve.cli.local_slots import check_slots
from cornserve.cli.options import DEFAULT_BUDGET

if TYPE_CHECKING:
    from cornserve.app.graph import AppGraph
    from cornserve.app.planning import PlanningInputs
    from cornserve.cli.measured_profile import MeasuredProfile
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve_planner.inputs.planning_inputs import PlanInputs
    from cornserve_planner.model.document import ModelDocument
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.planning.request import PlanRequest


class PlannedTarget(NamedTuple):
    """A target with a plan, the plan as a file, and the profile from which it was made."""

    target: DeployTarget
    plan: PlanFile
    profile: Path


class PlanBudget(NamedTuple):
    """The options of `cornserve deploy` from which a plan is made.

    Args:
        gpus_of: settings such as `H100=2`.
        objective: the cost that the rate minimizes: GPUs or dollars; for a budget, goodput.
        options: the file with GPU types of the deployment options.
        profile: None to measure all options.
        measuring: device time of the measurements, such as 10m.
        utilization: maximum fraction of the replicas' time. None for that of the planner.
        percentile: percentage of the requests that meet the targets. None for that of the planner.
        survive: whether the rate is still served after the loss of any one replica.
    """

    gpus: int | None
    gpus_of: list[str]
    rate: float | None
    objective: str | None
    options: Path | None
    workload: Path | None
    profile: Path | None
    measuring: str | None
    utilization: float | None
    percentile: float | None
    survive: bool

    def check(self, plan: Path | None, *, reads_profile: bool = False) -> bool:
        """Returns whether a plan is made. Raises `CliError` if the options contradict each other.

        Args:
            reads_profile: whether other options need the workload and the profile.
        """
        if self.gpus is None and not self.gpus_of and self.rate is None:
            given = {
                "--objective": self.objective,
                "--options": self.options,
                "--workload": self.workload,
                "--profile": self.profile,
                "--budget": self.measuring,
                "--utilization": self.utilization,
                "--percentile": self.percentile,
                "--survive": self.survive or None,
            }
            used = ("--workload", "--profile") if reads_profile else ()
            unused = [name for name, value in given.items() if value is not None and name not in used]
            if unused:
                raise CliError(f"{', '.join(unused)}: needs --gpus, --gpus-of or --rate, for which a plan is made")
            return False
        if plan is not None:
            raise CliError(
                "--plan: is a plan already: remove --gpus, --gpus-of, --rate, and the options for which a plan is made"
            )
        if self.objective in ("gpus", "dollars") and self.rate is None:
            raise CliError(
                "--objective: gpus and dollars are costs that a rate minimizes: give --rate, or remove the objective"
            )
        if (self.gpus is not None) + bool(self.gpus_of) + (self.rate is not None) > 1:
            raise CliError("give one of --gpus, --gpus-of and --rate")
        if self.workload is None:
            raise CliError("--workload: is missing: give the file that lists requests or their types")
        return True


def plan_target(client: Client, target: DeployTarget, graph: AppGraph, budget: PlanBudget) -> PlannedTarget:
    """Makes the plan of a target, and prints a summary of it. Measures the options that the profile lacks.

    Raises `CliError` or `DeployTargetError`: before a measurement, if the options, the workload or the profile are not
    valid for the app, or if no plan has so few GPUs.
    """
    try:
        from cornserve_planner.errors import PlannerError
        from cornserve_planner.model.document import ModelDocument
        from cornserve_planner.planning.model_plan import make_plan
        from cornserve_planner.planning.request import PlanRequest
        from cornserve_planner.report.plan_report import summary
        from cornserve_planner.terminal import parse_count, parse_settings
    except ImportError as error:
        raise CliError('planning needs the planner: run pip install "cornserve[planner]"') from error
    from cornserve.app.model_document import model_document
    from cornserve.app.plan import AppPlan
    from cornserve.client.deploy_target import resolve_target
    from cornserve.control.planning.service_targets import service_targets
    from cornserve.task.errors import DefinitionError
    from cornserve_plan.plan import describe_cells

    if budget.gpus is not None:
        check_slots(client, budget.gpus)
    try:
        model = ModelDocument.parse(dumps(model_document(target.name, graph)), source=f"{target.name}.json")
        if budget.options is not None:
            model = with_options(model, graph, budget.options)
        request = PlanRequest(
            model,
            budget.gpus,
            parse_settings("--gpus-of", "TYPE=N, a type and a whole number", budget.gpus_of, parse_count),
            rate=budget.rate,
            objective=budget.objective,
            workload=budget.workload,
            targets=service_targets(target.spec.policies.targets, budget.utilization, budget.percentile),
            survive=budget.survive,
        )
        _check_request(request, graph, model)
        profile = _profile(client, target, graph, model, budget, request)
        result = make_plan(replace(request, profile=profile.file))
        plan = AppPlan.of(result.file.deployable())
        planning = _planning(request, graph, profile.file, result.inputs)
    except (PlannerError, DefinitionError) as error:
        raise CliError(str(error)) from error
    stderr().print(summary(result.file, f"cells: {describe_cells(result.file.counts)}"))
    plan = plan.with_gpu_types(profile.slot_types)
    planned = resolve_target(target, name=None, plan=plan, step_limits=result.file.step_limits)
    planned = planned._replace(spec=planned.spec.model_copy(update={"planning": planning}))
    return PlannedTarget(planned, result.file, profile.file)


def _check_request(request: PlanRequest, graph: AppGraph, model: ModelDocument) -> None:
    """Raises `PlannerError` if no profile makes a plan possible, or if the app has no such requests."""
    from cornserve.control.planning.input_checks import check_workload
    from cornserve_planner.inputs.planning_inputs import check_gpu_types
    from cornserve_planner.profiles.gpus import GpuCatalog
    from cornserve_planner.workload.document import read_workload

    request.check()
    check_gpu_types(model.graph(), GpuCatalog.shipped())
    assert request.workload is not None
    shares = read_workload(request.workload, model.modalities).shares
    check_workload(graph, model, shares, request.budget, f"{request.workload.name}: types")


def _profile(
    client: Client,
    target: DeployTarget,
    graph: AppGraph,
    model: ModelDocument,
    budget: PlanBudget,
    request: PlanRequest,
) -> MeasuredProfile:
    from cornserve.cli.given_profile import check_profile
    from cornserve.cli.measured_profile import MeasuredProfile, measure_profile
    from cornserve.cli.profiling import parse_seconds
    from cornserve.control.planning.service_targets import TBT_REASON
    from cornserve.home import Home

    home, given = Home.default(), None
    if budget.profile is not None:
        given = check_profile(client, target, graph, model, budget.profile, home)
        if not given.missing:
            return MeasuredProfile(budget.profile, given.slot_types)
        text = f"{budget.profile.name} lacks {', '.join(given.missing)}, which will be measured"
        stderr().print(text, markup=False, soft_wrap=True)
    if request.targets.latency.least("tbt") is not None:
        raise CliError(f"--tbt: {TBT_REASON}")
    assert budget.workload is not None
    seconds = parse_seconds(budget.measuring or DEFAULT_BUDGET)
    return measure_profile(client, target, graph, model, budget.workload, request.budget, seconds, home, given)


def _planning(request: PlanRequest, graph: AppGraph, file: Path, inputs: PlanInputs) -> PlanningInputs:
    """Returns the inputs of the plan for the record: the shares and mean sizes of the types, and the GPUs, the
    throughput and the latency of the app's options.

    Args:
        file: the profile.
    """
    from pydantic import ValidationError

    from cornserve.app.planning import PlanningInputs
    from cornserve.validation_errors import describe_all
    from cornserve_planner.profiles.profile import ModelProfile
    from cornserve_planner.profiles.profile_matching import unused_entries
    from cornserve_planner.requests.request_sizes import mean_sizes

    profile = ModelProfile.read(file)
    unused = unused_entries(inputs.graph, profile)
    entries = [entry for entry in profile.options if entry not in unused]
    workload = {
        kind.name: {
            "components": sorted(kind.components),
            "share": share,
            "sizes": mean_sizes(found) if (found := inputs.workload.sizes.get(kind.name)) else {},
            "frequency": kind.frequency,
        }
        for kind, share in inputs.workload.shares.items()
    }
    used = profile.model_copy(update={"options": tuple(entries)})
    try:
        return PlanningInputs.model_validate(
            {
                "gpus": request.gpus,
                "gpus_of": dict(request.gpus_of) or None,
                "rate": request.rate,
                "objective": request.objective,
                "utilization": request.targets.utilization,
                "percentile": request.targets.latency.percentile,
                "survive": request.survive,
                **option_fields(inputs.model, graph),
                "workload": workload,
                "profile": used.fields,
            }
        )
    except ValidationError as error:
        raise CliError(describe_all(error.errors())) from None
