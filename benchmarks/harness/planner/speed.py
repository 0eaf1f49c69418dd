"""Measures solve times."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from benchmarks.harness.planner.instances import (
    LARGE,
    MANY_ROUTES,
    MULTIMODAL_LLM,
    OMNI,
    ProblemSize,
    random_problem,
)
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import PlanInputs, load_inputs
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.shipped import shipped_models
from cornserve_planner.model.solution import Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.cells import efficient_cells, fewest_gpus, most_requests, solve_cells
from cornserve_planner.solve.optimization import max_rate, min_gpus
from cornserve_planner.solve.solver import SolverEngine, SolverSettings

T = TypeVar("T")

SHORT_SIZES = (MULTIMODAL_LLM, OMNI, LARGE)
SIZES = (*SHORT_SIZES, MANY_ROUTES)
MILLION_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class SecondsSummary:
    """Median and maximum, in seconds."""

    median: float
    longest: float

    @classmethod
    def from_seconds(cls, seconds: Iterable[float]) -> SecondsSummary:
        seconds = list(seconds)
        return cls(statistics.median(seconds), max(seconds))


@dataclass(frozen=True, slots=True)
class SolveTimings:
    size: str
    engine: str
    count: int
    wall: SecondsSummary
    cpu: SecondsSummary
    """CPU time of this process and its children, which include CBC."""
    proven: int
    worst_gap: float


@dataclass(frozen=True, slots=True)
class ModelCells:
    model: str
    types: int
    paths: int
    cells: int
    kept: list[int]
    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class MixtureSpeed:
    what: str
    gpus: int
    counts: Mapping[int, int]
    microseconds: float


def cells(sizes: Iterable[ProblemSize], instances: int, gpus: int, limit: float) -> list[SolveTimings]:
    """Measures the maximum rate of a number of GPUs."""
    return [
        _solves(
            size.name, engine, [partial(_most, problem, gpus, SolverSettings(engine, limit)) for problem in problems]
        )
        for size in sizes
        for problems in [[random_problem(seed, size) for seed in range(instances)]]
        for engine in SolverEngine
    ]


def rates(sizes: Iterable[ProblemSize], instances: int, gpus: int, limit: float) -> list[SolveTimings]:
    """Measures the fewest GPUs for half of the rate of a number of GPUs, in one program without cells."""
    rows = []
    for size in sizes:
        problems = [random_problem(seed, size) for seed in range(instances)]
        wanted = [max_rate(problem, Budget(gpus=gpus), SolverSettings(gap=0.05)).rate / 2 for problem in problems]
        for engine in SolverEngine:
            solver = SolverSettings(engine, limit)
            jobs = [partial(min_gpus, *pair, solver=solver) for pair in zip(problems, wanted, strict=True)]
            rows.append(_solves(size.name, engine, jobs))
    return rows


def shipped(largest: int, limit: float) -> list[ModelCells]:
    """Measures the models with a shipped profile and workload."""
    return [_model_cells(inputs, largest, limit) for name in shipped_models() if (inputs := _load(name)) is not None]


def mixtures() -> list[MixtureSpeed]:
    """Measures mixtures of the cells of a random problem."""
    found = solve_cells(random_problem(0, OMNI), 64)
    most, seconds = _fastest(lambda: most_requests(found, MILLION_GPUS))
    fewest, more = _fastest(lambda: fewest_gpus(found, 0.999 * most.rate))
    rows = [("most requests on a million GPUs", most, seconds), ("fewest GPUs for 99.9 % of that", fewest, more)]
    return [MixtureSpeed(what, found.gpus, found.counts, taken * 1e6) for what, found, taken in rows]


def _most(problem: PlanningProblem, gpus: int, solver: SolverSettings) -> Solution:
    return max_rate(problem, Budget(gpus=gpus), solver)


def _solves(size: str, engine: SolverEngine, jobs: Sequence[Callable[[], Solution]]) -> SolveTimings:
    runs = [_timed(job) for job in jobs]
    return SolveTimings(
        size=size,
        engine=engine,
        count=len(runs),
        wall=SecondsSummary.from_seconds(wall for _, wall, _ in runs),
        cpu=SecondsSummary.from_seconds(cpu for _, _, cpu in runs),
        proven=sum(plan.proven for plan, _, _ in runs),
        worst_gap=max(plan.gap for plan, _, _ in runs),
    )


def _load(model: str) -> PlanInputs | None:
    """Loads the inputs of a shipped model. Returns None if its profile is incomplete."""
    try:
        return load_inputs(model)
    except InvalidInputError:
        return None


def _model_cells(inputs: PlanInputs, largest: int, limit: float) -> ModelCells:
    found, wall, cpu = _timed(lambda: solve_cells(inputs.problem, largest, SolverSettings(time_limit=limit)))
    problem = inputs.problem
    kept = [cell.gpus for cell in efficient_cells(found)]
    return ModelCells(inputs.model.name, len(problem.shares), len(problem.paths), len(found), kept, wall, cpu)


def _timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """Returns the result, the wall time and the CPU time in seconds."""
    wall, cpu = time.perf_counter(), _cpu()
    result = work()
    return result, time.perf_counter() - wall, _cpu() - cpu


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _fastest(work: Callable[[], T], repeats: int = 100) -> tuple[T, float]:
    runs = [_timed(work) for _ in range(repeats)]
    return runs[0][0], min(wall for _, wall, _ in runs)
