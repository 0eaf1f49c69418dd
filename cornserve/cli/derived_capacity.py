"""The load that a replica of an autoscaled executor takes, from a profile and the TTFT target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from cornserve.app.graph_recording import SpecGraph
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.simulation.stage_capacity import StageCapacity


class CapacityInputs(NamedTuple):
    """The options of `cornserve deploy` from which the capacities of executors follow."""

    executors: Sequence[str]
    ttft: float
    workload: Path
    profile: Path

    @classmethod
    def of(
        cls, executors: Sequence[str], ttft: float | None, workload: Path | None, profile: Path | None
    ) -> Self | None:
        """Returns the options. None without executors. Raises `CliError` if an option is missing."""
        if not executors:
            return None
        if ttft is None or workload is None or profile is None:
            raise CliError(
                f"--autoscale: {executors[0]} has no load of a replica: give {executors[0]}=2000tokens, or --ttft, "
                "--workload and --profile, from which it follows"
            )
        return cls(executors, ttft, workload, profile)


class DerivedCapacity(NamedTuple):
    """The load per second that one replica takes. `unit`: `tokens` or `requests`."""

    capacity: float
    unit: str

    @classmethod
    def of(cls, found: Sequence[StageCapacity]) -> Self:
        """Returns the least of the loads with three digits, in requests unless all of them have tokens."""
        tokens = [each.tokens for each in found if each.tokens is not None]
        unit = "tokens" if len(tokens) == len(found) else "requests"
        least = min(tokens if unit == "tokens" else [each.requests for each in found])
        return cls(float(f"{least:.3g}"), unit)

    def __str__(self) -> str:
        return f"{self.capacity:g} {self.unit}/s"


def check_names(names: Collection[str], executors: Collection[str]) -> None:
    """Checks that these executors exist. Raises `CliError`."""
    for name in names:
        if name not in executors:
            known = ", ".join(sorted({*executors}))
            raise CliError(f"--autoscale: the app has no executor {name!r}: use {known}")


def derive_capacities(
    app: str, target: SpecGraph, inputs: CapacityInputs, plan: PlanFile | None = None
) -> dict[str, DerivedCapacity]:
    """Returns the load of each executor at which a replica needs its part of the TTFT target.

    The load has tokens if the workload states those of its requests. Executors with one name have the least of their
    loads. Those that the plan does not run are left out.

    Args:
        plan: the plan by which the app is deployed, if there is one.

    Raises `CliError`.
    """
    try:
        from cornserve_planner.errors import PlannerError
        from cornserve_planner.model.document import ModelDocument
        from cornserve_planner.planning.given_plan import plan_replicas
        from cornserve_planner.planning.request import PlanRequest
        from cornserve_planner.simulation.serving_settings import ServingSettings
        from cornserve_planner.simulation.simulation_result import SimulationRequest, replica_capacities
    except ImportError as error:
        raise CliError('capacities need the planner: run pip install "cornserve[planner]"') from error
    from cornserve.app.model_document import model_document

    deployed: Iterable[str] = target.deployed
    if plan is not None:
        deployed = (name for cell in plan.cells if cell.count for name in cell.replicas)
    options = {name: target.executors[name] for name in deployed}
    if plan is None:
        check_names(inputs.executors, options.values())
    scaled = [option for option, name in options.items() if name in inputs.executors]
    if not scaled:
        return {}
    settings = ServingSettings(ttft=inputs.ttft, autoscaled=dict.fromkeys(scaled))
    try:
        if plan is None:
            model = ModelDocument.parse(dumps(model_document(app, target.graph)), source=f"{app}.json")
            planned = PlanRequest(model, rate=1.0, workload=inputs.workload, profile=inputs.profile)
            plan = plan_replicas(planned, dict.fromkeys(options, 1))
        # The rate changes the times at which the requests arrive, but not the capacities.
        request = SimulationRequest(plan, app, inputs.workload, inputs.profile, 1.0, settings=settings)
        capacities = replica_capacities(request)
    except PlannerError as error:
        raise CliError(str(error)) from error
    return {
        name: DerivedCapacity.of([found for option, found in capacities.items() if options[option] == name])
        for name in dict.fromkeys(options[option] for option in scaled)
    }
