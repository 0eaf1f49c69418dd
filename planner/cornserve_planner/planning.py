"""One run of the planner: takes a `PlanRequest`, returns a `PlanResult`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cornserve_planner.cells import Cell, efficient_cells, solve_cells
from cornserve_planner.deployment_plan import DeploymentPlan
from cornserve_planner.errors import InvalidInputError, require_positive
from cornserve_planner.explanation import PlanExplanation, explain_plan
from cornserve_planner.inputs import PlanInputs, load_inputs
from cornserve_planner.mixture import fewest_gpus, most_requests
from cornserve_planner.plan import Plan
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate, min_dollars, min_gpus
from cornserve_planner.solve.solver import SolverEngine, SolverSettings

ProgressCallback = Callable[[int, int, str], None]
"""Receives the number of finished steps, the number of all steps, and a description of the next step."""

DIRECT_GPUS = 64
"""Up to this many GPUs, a plan without cells is found fast enough to show for comparison."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The options of the command: a GPU budget or a target rate, and the input files.

    Without a budget and a rate, the rate of the workload is used.
    """

    model: str
    gpus: int | None = None
    gpus_of: Mapping[str, int] = field(default_factory=dict)
    rate: float | None = None
    workload: Path | None = None
    profile: Path | None = None
    gpu_types: Path | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    objective: str = "gpus"
    largest_cell: int = 64
    whole: bool = False
    solver: str = "highs"
    time_limit: float = 60.0


@dataclass(frozen=True)
class PlanResult:
    """
    Args:
        cells: all cells that were solved; empty for a single plan for all GPUs.
        explanations: one for each plan of the deployment, in the same order.
        direct: the plan with the fewest GPUs without cells, for comparison. None if it was not computed.
    """

    inputs: PlanInputs
    cells: tuple[Cell, ...]
    deployment: DeploymentPlan
    explanations: tuple[PlanExplanation, ...]
    direct: Plan | None = None

    def save(self, path: Path) -> None:
        self.deployment.write(path)

    def as_document(self) -> dict[str, Any]:
        """Returns the fields that `--json` prints: the deployment plan and the details of the search."""
        kept = {cell.gpus for cell in efficient_cells(self.cells)}
        return {
            **self.deployment.model_dump(mode="json"),
            "direct": None if self.direct is None else self.direct.model_dump(mode="json"),
            "cells": [{"gpus": cell.gpus, "rate": cell.rate, "kept": cell.gpus in kept} for cell in self.cells],
            "explanations": [
                {
                    "gpus": explanation.plan.gpus,
                    "binding": explanation.binding,
                    "limiting": explanation.limiting,
                    "utilisation": explanation.utilisation,
                    "one_more": explanation.one_more,
                    "gain": explanation.gain,
                    "strategies": [
                        {"name": result.name, "replicas": result.replicas, "rate": result.rate, "gpus": result.gpus}
                        for result in explanation.strategies
                    ],
                    "excluded": explanation.excluded,
                }
                for explanation in self.explanations
            ],
        }


def make_plan(request: PlanRequest, progress: ProgressCallback = lambda done, total, what: None) -> PlanResult:
    """Loads the inputs and solves the request.

    Raises `InvalidInputError`, `InfeasibleError` or `NoPlanFoundError`.
    """
    if request.rate is not None:
        require_positive("--rate", request.rate)
    inputs = load_inputs(request.model, request.workload, request.profile, request.gpu_types, request.factors)
    solver = SolverSettings(SolverEngine(request.solver), request.time_limit)
    has_budget = request.gpus is not None or bool(request.gpus_of)
    _check_types(request.gpus_of, inputs)
    rate = request.rate if has_budget or request.rate else inputs.workload.rate
    if has_budget == (rate is not None):
        raise InvalidInputError("--gpus, --rate", "give exactly one: a GPU budget or a target rate")
    if request.objective == "dollars" and rate is None:
        raise InvalidInputError("--objective", "dollars needs a --rate; a budget is given in GPUs")
    if request.whole or request.gpus_of or request.objective == "dollars":
        return _plan_whole(request, inputs, rate, solver)
    return _plan_cells(request, inputs, rate, solver, progress)


def _check_types(names: Iterable[str], inputs: PlanInputs) -> None:
    known = sorted({option.gpu for option in inputs.graph.options if option.gpu})
    for name in names:
        if name not in known:
            types = f"its GPU types are {', '.join(known)}" if known else "its options do not name GPU types"
            raise InvalidInputError("--gpus-of", f"no option of {inputs.model.name} runs on {name!r}: {types}")


def _plan_whole(request: PlanRequest, inputs: PlanInputs, rate: float | None, solver: SolverSettings) -> PlanResult:
    problem, budget = inputs.problem, Budget(request.gpus, request.gpus_of)
    if rate is None:
        plan = max_rate(problem, budget, solver)
    else:
        plan = (min_dollars if request.objective == "dollars" else min_gpus)(problem, rate, budget, solver)
    deployment = DeploymentPlan.from_plan(inputs.model.name, problem.shares, plan, rate)
    return PlanResult(inputs, (), deployment, (explain_plan(problem, plan, budget),))


def _plan_cells(
    request: PlanRequest, inputs: PlanInputs, rate: float | None, solver: SolverSettings, progress: ProgressCallback
) -> PlanResult:
    largest = request.largest_cell if request.gpus is None else min(request.largest_cell, request.gpus)
    sizes = 1 + math.floor(math.log2(largest))
    progress(0, sizes, "Cell of 1 GPU")
    done = iter(range(1, sizes + 1))
    cells = solve_cells(
        inputs.problem,
        largest,
        solver,
        lambda cell: progress(next(done), sizes, f"Cell of {2 * cell.gpus} GPUs"),
    )
    mixture = fewest_gpus(cells, rate) if request.gpus is None and rate else most_requests(cells, request.gpus or 0)
    deployment = DeploymentPlan.from_mixture(inputs.model.name, inputs.problem.shares, mixture, cells, rate)
    plans = {cell.gpus: cell.plan for cell in cells}
    explanations = tuple(
        explain_plan(inputs.problem, plan, Budget(gpus=gpus))
        for gpus in sorted(mixture.counts, reverse=True)
        if (plan := plans[gpus]) is not None
    )
    direct = min_gpus(inputs.problem, rate, solver=solver) if rate and deployment.gpus <= DIRECT_GPUS else None
    return PlanResult(inputs, cells, deployment, explanations, direct)
