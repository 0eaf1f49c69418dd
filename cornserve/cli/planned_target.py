"""Plans the target of `cornserve deploy` for a number of GPUs or a rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cornserve.cli.app_model import target_model
from cornserve.cli.console import CliError, stderr

if TYPE_CHECKING:
    from cornserve.client.deploy_target import DeployTarget


class PlanBudget(NamedTuple):
    """The options of `cornserve deploy` from which a plan is made."""

    gpus: int | None
    rate: float | None
    workload: Path | None
    profile: Path | None

    def check(self, plan: Path | None) -> bool:
        """Returns whether a plan is made. Raises `CliError` if the options contradict each other."""
        if self.gpus is None and self.rate is None:
            unused = [f"--{name}" for name in ("workload", "profile") if getattr(self, name) is not None]
            if unused:
                raise CliError(f"{', '.join(unused)}: needs --gpus or --rate, for which a plan is made")
            return False
        if plan is not None:
            raise CliError("--plan: is a plan already: remove --gpus, --rate, --workload and --profile")
        for name, made in (("workload", "lists requests or their types"), ("profile", "`cornserve profile` writes")):
            if getattr(self, name) is None:
                raise CliError(f"--{name}: is missing: give the file that {made}")
        return True


def plan_target(target: DeployTarget, budget: PlanBudget) -> DeployTarget:
    """Returns the target with a plan, and prints a summary of it. Raises `CliError` or `DeployTargetError`."""
    try:
        from cornserve_planner.errors import PlannerError
        from cornserve_planner.model_document import ModelDocument
        from cornserve_planner.plan_request import PlanRequest
        from cornserve_planner.planning import make_plan
        from cornserve_planner.report import summary
    except ImportError as error:
        raise CliError('planning needs the planner: run pip install "cornserve[planner]"') from error
    from cornserve.app.plan import describe_cells
    from cornserve.client.deploy_target import resolve_target
    from cornserve.client.plan_conversion import convert_plan

    document = target_model(target)
    try:
        model = ModelDocument.parse(document, source=f"{target.name}.json")
        result = make_plan(
            PlanRequest(model, budget.gpus, rate=budget.rate, workload=budget.workload, profile=budget.profile)
        )
    except PlannerError as error:
        raise CliError(str(error)) from error
    stderr().print(summary(result.file, f"cells: {describe_cells(result.file.counts)}"))
    return resolve_target(target, name=None, plan=convert_plan(result.file, "the plan"))
