"""One run of `cornserve plan`: what was wished for, what was found, and how to write it down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cornserve_planner.assembly import Assembly, assemble
from cornserve_planner.cells import Cell, efficient, solve_cells
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.explain import Explanation, explain
from cornserve_planner.mixture import fewest_gpus, most_requests
from cornserve_planner.plan import Plan
from cornserve_planner.proposal import Proposal
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.engine import Engine, Solver
from cornserve_planner.solve.milp import max_rate, min_dollars, min_gpus

Advance = Callable[[int, int, str], None]
"""Told how much is done, of how much, and what is done next."""

DIRECT_GPUS = 64
"""Up to so many, a plan without cells is found soon enough to compare with."""


@dataclass(frozen=True, slots=True)
class Wish:
    """As the command's options: a budget or a rate, which a workload may know."""

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
class Found:
    """
    Args:
        cells: all that were solved; none where one plan for all GPUs was wished for.
        explanations: of each plan in the proposal, in its order.
        direct: the plan with the fewest GPUs without cells, where there are few and it is not the proposal.
    """

    assembly: Assembly
    cells: tuple[Cell, ...]
    proposal: Proposal
    explanations: tuple[Explanation, ...]
    direct: Plan | None = None

    def save(self, path: Path) -> None:
        self.proposal.write(path)

    def plot(self, path: Path) -> None:
        from cornserve_planner.picture import draw_plan

        draw_plan(self, path)

    def as_document(self) -> dict[str, Any]:
        """For programs: the proposal, and how it came about."""
        kept = {cell.gpus for cell in efficient(self.cells)}
        return {
            **self.proposal.model_dump(mode="json"),
            "direct": None if self.direct is None else self.direct.model_dump(mode="json"),
            "cells": [{"gpus": cell.gpus, "rate": cell.rate, "kept": cell.gpus in kept} for cell in self.cells],
            "explanations": [
                {
                    "gpus": it.plan.gpus,
                    "binding": it.binding,
                    "limiting": it.limiting,
                    "utilisation": it.utilisation,
                    "one_more": it.one_more,
                    "gain": it.gain,
                    "strategies": [
                        {"name": reached.name, "replicas": reached.replicas, "rate": reached.rate, "gpus": reached.gpus}
                        for reached in it.strategies
                    ],
                    "excluded": it.excluded,
                }
                for it in self.explanations
            ],
        }


def find(wish: Wish, advance: Advance = lambda done, total, what: None) -> Found:
    """Raises `InvalidInputError`, `InfeasibleError` or `NoPlanFoundError`."""
    if wish.rate is not None and not (math.isfinite(wish.rate) and wish.rate > 0):
        raise InvalidInputError("--rate", f"has to be a number above 0, not {wish.rate:g}")
    assembly = assemble(wish.model, wish.workload, wish.profile, wish.gpu_types, wish.factors)
    solver = Solver(Engine(wish.solver), wish.time_limit)
    has_budget = wish.gpus is not None or bool(wish.gpus_of)
    _check_types(wish.gpus_of, assembly)
    rate = wish.rate if has_budget or wish.rate else assembly.workload.rate
    if has_budget == (rate is not None):
        raise InvalidInputError("--gpus, --rate", "say one of them: a budget, or what is to be served")
    if wish.objective == "dollars" and rate is None:
        raise InvalidInputError("--objective", "dollars are for a --rate: a budget is given in GPUs")
    if wish.whole or wish.gpus_of or wish.objective == "dollars":
        return _whole(wish, assembly, rate, solver)
    return _of_cells(wish, assembly, rate, solver, advance)


def _check_types(wished: Iterable[str], assembly: Assembly) -> None:
    known = sorted({option.gpu for option in assembly.graph.options if option.gpu})
    for name in wished:
        if name not in known:
            runs = f"on {', '.join(known)}" if known else "on any GPU, of no type"
            raise InvalidInputError("--gpus-of", f"nothing of {assembly.model.name} runs on {name!r}: it runs {runs}")


def _whole(wish: Wish, assembly: Assembly, rate: float | None, solver: Solver) -> Found:
    problem, budget = assembly.problem, Budget(wish.gpus, wish.gpus_of)
    if rate is None:
        found = max_rate(problem, budget, solver)
    else:
        found = (min_dollars if wish.objective == "dollars" else min_gpus)(problem, rate, budget, solver)
    proposal = Proposal.of_plan(assembly.model.name, problem.shares, found, rate)
    return Found(assembly, (), proposal, (explain(problem, found, budget),))


def _of_cells(wish: Wish, assembly: Assembly, rate: float | None, solver: Solver, advance: Advance) -> Found:
    largest = wish.largest_cell if wish.gpus is None else min(wish.largest_cell, wish.gpus)
    sizes = 1 + math.floor(math.log2(largest))
    advance(0, sizes, "Cell of 1 GPU")
    done = iter(range(1, sizes + 1))
    cells = solve_cells(
        assembly.problem,
        largest,
        solver,
        lambda cell: advance(next(done), sizes, f"Cell of {2 * cell.gpus} GPUs"),
    )
    mixture = fewest_gpus(cells, rate) if wish.gpus is None and rate else most_requests(cells, wish.gpus or 0)
    proposal = Proposal.of_mixture(assembly.model.name, assembly.problem.shares, mixture, cells, rate)
    plans = {cell.gpus: cell.plan for cell in cells}
    explanations = tuple(
        explain(assembly.problem, plan, Budget(gpus=gpus))
        for gpus in sorted(mixture.counts, reverse=True)
        if (plan := plans[gpus]) is not None
    )
    direct = min_gpus(assembly.problem, rate, solver=solver) if rate and proposal.gpus <= DIRECT_GPUS else None
    return Found(assembly, cells, proposal, explanations, direct)
