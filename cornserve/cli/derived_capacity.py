"""The load that a replica of an autoscaled executor takes, from a profile and the TTFT target."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from cornserve.cli.app_model import target_graph
from cornserve.cli.console import CliError
from cornserve.cli.file_import import run_import

if TYPE_CHECKING:
    from cornserve.client.deadline import Deadline
    from cornserve.client.deploy_target import DeployTarget
    from cornserve_planner.simulation.stage_capacity import StageCapacity


class CapacityInputs(NamedTuple):
    """The options of `cornserve deploy` from which capacities follow.

    Args:
        source: names the file or model of the target.
        deadline: limits the imports of the file.
    """

    source: str
    ttft: float | None
    workload: Path | None
    profile: Path | None
    deadline: Deadline


class DerivedCapacity(NamedTuple):
    """The load per second that one replica takes. `unit`: `tokens` or `requests`."""

    capacity: float
    unit: str

    @classmethod
    def of(cls, found: StageCapacity) -> Self:
        """Returns the load with three digits."""
        load, unit = (found.requests, "requests") if found.tokens is None else (found.tokens, "tokens")
        return cls(float(f"{load:.3g}"), unit)

    def __str__(self) -> str:
        return f"{self.capacity:g} {self.unit}/s"


def derive_capacities(
    target: DeployTarget, executors: Iterable[str], inputs: CapacityInputs
) -> dict[str, DerivedCapacity]:
    """Returns the load of each executor at which a replica needs its part of the TTFT target.

    The load has tokens if the workload states those of its requests. Executors with one name have the least of their
    loads.

    Raises `CliError`.
    """
    names = [*executors]
    if inputs.ttft is None or inputs.workload is None or inputs.profile is None:
        raise CliError(
            f"--autoscale: {names[0]} has no load of a replica: give {names[0]}=2000tokens, or --ttft, --workload and "
            "--profile, from which it follows"
        )
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

    graph = run_import(inputs.source, partial(target_graph, target), inputs.deadline.limit)
    deployed = run_import(inputs.source, partial(_executors, target), inputs.deadline.limit)
    options = {name: deployed[each.executor] for name, each in graph.options.items() if each.executor in deployed}
    for name in names:
        if name not in options.values():
            known = ", ".join(sorted({*options.values()}))
            raise CliError(f"--autoscale: the app has no executor {name!r}: use {known}")
    scaled = [name for name, executor in options.items() if executor in names]
    settings = ServingSettings(ttft=inputs.ttft, autoscaled=dict.fromkeys(scaled))
    try:
        model = ModelDocument.parse(dumps(model_document(target.name, graph)), source=f"{target.name}.json")
        planned = PlanRequest(model, rate=1.0, workload=inputs.workload, profile=inputs.profile)
        plan = plan_replicas(planned, dict.fromkeys(options, 1))
        # The rate changes the times at which the requests arrive, but not the capacities.
        request = SimulationRequest(plan, target.name, inputs.workload, inputs.profile, 1.0, settings=settings)
        capacities = replica_capacities(request)
    except PlannerError as error:
        raise CliError(str(error)) from error
    loads = {option: DerivedCapacity.of(each) for option, each in capacities.items()}
    return {name: min(load for option, load in loads.items() if options[option] == name) for name in names}


def _executors(target: DeployTarget) -> dict[str, str]:
    """Returns the name of each executor that the app deploys, by its key. Runs the code of an app with source."""
    from cornserve.app.load import load_app
    from cornserve.app.source import unload_app
    from cornserve.task.errors import DefinitionError

    module = "cornserve_autoscaled_app"
    try:
        app = load_app(target.name, target.spec, module)
    except DefinitionError as error:
        raise CliError(str(error)) from error
    specs = app.executor_specs()
    unload_app(module)
    return {key: spec.executor for key, spec in specs.items()}
