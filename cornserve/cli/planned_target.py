"""Plans the target of `cornserve deploy` for a number of GPUs or a rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cornserve.cli.app_model import target_model
from cornserve.cli.console import CliError, stderr
from cornserve.cli.options import DEFAULT_BUDGET

if TYPE_CHECKING:
    from cornserve.app.plan import AppPlan
    from cornserve.app.planning import PlanningInputs
    from cornserve.cli.measured_profile import MeasuredProfile
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget
    from cornserve_planner.inputs import PlanInputs
    from cornserve_planner.model_document import ModelDocument


class PlanBudget(NamedTuple):
    """The options of `cornserve deploy` from which a plan is made.

    Args:
        profile: None to measure it.
        measuring: device time of the measurements, such as 10m.
    """

    gpus: int | None
    rate: float | None
    workload: Path | None
    profile: Path | None
    measuring: str | None

    def check(self, plan: Path | None) -> bool:
        """Returns whether a plan is made. Raises `CliError` if the options contradict each other."""
        if self.gpus is None and self.rate is None:
            given = {"--workload": self.workload, "--profile": self.profile, "--budget": self.measuring}
            unused = [name for name, value in given.items() if value is not None]
            if unused:
                raise CliError(f"{', '.join(unused)}: needs --gpus or --rate, for which a plan is made")
            return False
        if plan is not None:
            raise CliError("--plan: is a plan already: remove --gpus, --rate, --workload, --profile and --budget")
        if self.workload is None:
            raise CliError("--workload: is missing: give the file that lists requests or their types")
        if self.profile is not None and self.measuring is not None:
            raise CliError("--budget: has no effect with --profile, which replaces measurements: remove one of them")
        return True


def plan_target(client: Client, target: DeployTarget, budget: PlanBudget) -> DeployTarget:
    """Returns the target with a plan, and prints a summary of it. Measures the options without a profile.

    Raises `CliError` or `DeployTargetError`.
    """
    try:
        from cornserve_planner.errors import PlannerError
        from cornserve_planner.model_document import ModelDocument
        from cornserve_planner.plan_request import PlanRequest
        from cornserve_planner.planning import make_plan
        from cornserve_planner.report import summary
    except ImportError as error:
        raise CliError('planning needs the planner: run pip install "cornserve[planner]"') from error
    from cornserve.app.plan import describe_cells
    from cornserve.app.plan_conversion import PlanConversionError, convert_plan
    from cornserve.client.deploy_target import resolve_target

    document = target_model(target)
    try:
        model = ModelDocument.parse(document, source=f"{target.name}.json")
        profile = _profile(client, target, model, budget)
        result = make_plan(
            PlanRequest(model, budget.gpus, rate=budget.rate, workload=budget.workload, profile=profile.file)
        )
        plan, planning = convert_plan(result.file, "the plan"), _planning(budget, profile.file, result.inputs)
    except (PlannerError, PlanConversionError) as error:
        raise CliError(str(error)) from error
    stderr().print(summary(result.file, f"cells: {describe_cells(result.file.counts)}"))
    plan = _on_slots(plan, profile.slot_type)
    planned = resolve_target(target, name=None, plan=plan)
    return planned._replace(spec=planned.spec.model_copy(update={"planning": planning}))


def _profile(client: Client, target: DeployTarget, model: ModelDocument, budget: PlanBudget) -> MeasuredProfile:
    from cornserve.cli.measured_profile import MeasuredProfile, measure_profile
    from cornserve.cli.profiling import parse_seconds
    from cornserve.home import Home

    if budget.profile is not None:
        return MeasuredProfile(budget.profile, None)
    assert budget.workload is not None
    seconds = parse_seconds(budget.measuring or DEFAULT_BUDGET)
    return measure_profile(client, target, model, budget.workload, budget.gpus, seconds, Home.default())


def _on_slots(plan: AppPlan, slot_type: str | None) -> AppPlan:
    """Returns the plan with the type of slots of its options, unless they name another one."""
    options = {
        name: option.model_copy(update={"gpu_type": option.gpu_type or slot_type})
        for name, option in plan.options.items()
    }
    return plan.model_copy(update={"options": options})


def _planning(budget: PlanBudget, file: Path, inputs: PlanInputs) -> PlanningInputs:
    """Returns the inputs of the plan for the record: the shares and mean sizes of the types, and the throughput of the
    app's options.

    Args:
        file: the profile.
    """
    from pydantic import ValidationError

    from cornserve.app.planning import PlanningInputs
    from cornserve.validation_errors import describe_all
    from cornserve_planner.profiles.profile import ModelProfile
    from cornserve_planner.profiles.profile_matching import unused_entries
    from cornserve_planner.workload.request_sizes import mean_sizes

    profile = ModelProfile.read(file)
    unused = unused_entries(inputs.graph, profile)
    entries = [entry.model_copy(update={"latency": ()}) for entry in profile.options if entry not in unused]
    workload = {
        kind.name: {
            "components": sorted(kind.components),
            "share": share,
            "sizes": mean_sizes(found) if (found := inputs.workload.sizes.get(kind.name)) else {},
        }
        for kind, share in inputs.workload.shares.items()
    }
    used = profile.model_copy(update={"options": tuple(entries)})
    try:
        return PlanningInputs.model_validate(
            {"gpus": budget.gpus, "rate": budget.rate, "workload": workload, "profile": used.fields}
        )
    except ValidationError as error:
        raise CliError(describe_all(error.errors())) from None
