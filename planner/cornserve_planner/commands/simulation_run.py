"""Runs `cornserve simulate`: reads or makes the plan, simulates it with progress, and repeats decisions of logs.

The functions import their dependencies when they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import typer

from cornserve_planner.commands.plan_from import read_app
from cornserve_planner.errors import PlannerError
from cornserve_planner.terminal import show, write_file

if TYPE_CHECKING:
    from cornserve_planner.plan_file.document import PlanFile
    from cornserve_planner.simulation.simulation_result import SimulationRequest, SimulationResult

PROGRESS_SECONDS = 1.0


def run_simulation(request: SimulationRequest, plot: Path | None, *, json: bool) -> None:
    """Simulates, and prints and draws the result."""
    from cornserve_planner.simulation.simulation_report import simulation_report

    result = _simulate(request)
    show(result.as_document, lambda: simulation_report(result), json=json)
    if plot is not None:
        write_file(plot, lambda path: _draw(result, path))


def replay_decisions(log: Path, routing: str | None, json: bool) -> None:
    """Prints the repeated decisions. Fails if some differ, unless another policy makes them."""
    from cornserve_planner.simulation.decision_replay import DecisionReplay
    from cornserve_planner.simulation.replay_report import replay_document, replay_report

    result = DecisionReplay(routing).run(log)
    show(lambda: replay_document(result), lambda: replay_report(result), json=json)
    if result.different and routing is None:
        raise PlannerError(f"{log.name}: {result.different.total()} decisions are not repeated")


def read_plan(
    context: typer.Context,
    target: str,
    replicas: Mapping[str, int],
    *,
    gpus: int | None,
    rate: float | None,
    workload: Path | None,
    profile: Path | None,
) -> PlanFile:
    """Returns the plan of a file, or makes one for a model or an app."""
    from cornserve_planner.plan_file.document import PlanFile

    if target.endswith(".json"):
        if replicas or gpus is not None:
            raise PlannerError("--gpus, --replicas: are those of the plan file: remove them, or give an app")
        return PlanFile.read(Path(target))
    from cornserve_planner.model.document import ModelDocument
    from cornserve_planner.model.shipped import shipped_models
    from cornserve_planner.planning.given_plan import plan_replicas
    from cornserve_planner.planning.model_plan import make_plan
    from cornserve_planner.planning.request import PlanRequest

    model: str | ModelDocument = target
    if target not in shipped_models() and not target.endswith((".yaml", ".yml")):
        model = ModelDocument.parse(read_app(context, target, None), source=f"{target}.json")
    request = PlanRequest(model, gpus=gpus, rate=rate if gpus is None else None, workload=workload, profile=profile)
    if not replicas:
        return make_plan(request).file
    if gpus is not None:
        raise PlannerError("--gpus, --replicas: give one of them")
    return plan_replicas(request, replicas)


def _simulate(request: SimulationRequest) -> SimulationResult:
    """Runs the simulation, and prints its progress to stderr once per second."""
    from cornserve_planner.simulation.simulation_result import simulate_plan

    started = printed = monotonic()

    def update(seconds: float, requests: int) -> None:
        nonlocal printed
        now = monotonic()
        if now - printed >= PROGRESS_SECONDS:
            printed = now
            typer.echo(f"{requests:,} requests, {seconds:.4g} simulated seconds in {now - started:.3g} s", err=True)

    return simulate_plan(request, update)


def _draw(result: SimulationResult, path: Path) -> None:
    from cornserve_planner.drawing.plot import draw_times
    from cornserve_planner.simulation.time_series import time_charts

    if not result.measurements.completed:
        raise PlannerError("--plot: no request completed, so the plot would be empty")
    draw_times(path, time_charts(result))
