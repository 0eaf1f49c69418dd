"""Qwen2.5-Omni: the plans that follow from [C Table 1], and the inputs that would give the plans of [C §7.2]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from benchmarks.reproduction.markdown import prose, replicas, table
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.optimization import max_rate

EL, G, MONOLITH = "encoders+llm", "audio_generator", "monolith"
SHORT = {EL: "EL", G: "G", MONOLITH: "M"}
PRINTED = {8: 3.09, 16: 3.81}
"""Gains over monoliths [C §7.2, Figure 6a]."""
SLOWER = (1, 5, 11, 12, 20, 27, 28)
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)


def section() -> str:
    problem = published()
    el, g = _seconds(problem, EL), _seconds(problem, G)
    return prose("omni").format(
        work=table(
            ["", "image encoder", "video encoder", "audio encoder", "language model", "audio generator"],
            [["seconds", *(f"{_seconds(problem, name):.3f}" for name in _ALONE)]],
        ),
        plans=table(
            ["GPUs", "best plan", "requests/s"],
            [[gpus, replicas(*_best(problem, gpus)[:1], SHORT), f"{_best(problem, gpus)[1]:.2f}"] for gpus in PRINTED],
            text=2,
        ),
        one_seven=capacity(_apart(problem), {EL: 1, G: 7})[0],
        one_fifteen=capacity(_apart(problem), {EL: 1, G: 15})[0],
        one_el=1 / el,
        slower=table(["k", "8 GPUs", "requests/s", "16 GPUs", "requests/s"], [_slower(problem, k) for k in SLOWER]),
        seven=6 * el / g,
        fifteen=14 * el / g,
        gains=table(["α", "8 GPUs", "gain", "16 GPUs", "gain"], [_gains(factor) for factor in FACTORS]),
        alpha_8=_factor_for(8),
        alpha_16=_factor_for(16),
    )


_ALONE = ("image_encoder", "video_encoder", "audio_encoder", "llm", G)


@cache
def published(monolith: float = 1.0) -> PlanningProblem:
    """Returns the problem of [C Table 1], where a monolith takes `monolith` times the sum of its components' times.

    Other executors with several components take the sum of their components' times.
    """
    return load_inputs("qwen2.5-omni-7b", factors={"encoders": 1.0, EL: 1.0, MONOLITH: monolith}).problem


def _apart(problem: PlanningProblem) -> PlanningProblem:
    return problem.restricted_to([EL, G])


def _best(problem: PlanningProblem, gpus: int) -> tuple[Mapping[str, int], float]:
    plan = max_rate(_apart(problem), Budget(gpus=gpus))
    return plan.replicas, plan.rate


def _seconds(problem: PlanningProblem, option: str) -> float:
    """Returns the seconds of an option for the mean request, with EL or all single components as separate executors."""
    options = [EL, G] if option == EL else _ALONE
    paths = problem.restricted_to(options).paths
    return sum(problem.shares[path.type] * path.seconds.get(option, 0.0) for path in paths)


def _slower(problem: PlanningProblem, k: float) -> list[object]:
    def slowed(path: RequestPath) -> RequestPath:
        return replace(path, seconds={name: each * (k if name == G else 1) for name, each in path.seconds.items()})

    harder = replace(problem, paths=tuple(map(slowed, problem.paths)))
    row: list[object] = [k]
    for gpus in PRINTED:
        counts, rate = _best(harder, gpus)
        row += [replicas(counts, SHORT), f"{rate:.2f}"]
    return row


def _gains(factor: float) -> list[object]:
    row: list[object] = [f"{factor:g}"]
    for gpus in PRINTED:
        plan, gain = _gain(factor, gpus)
        row += [replicas(plan, SHORT), f"{gain:.2f}×"]
    return row


def _gain(factor: float, gpus: int) -> tuple[Mapping[str, int], float]:
    problem = published(factor)
    plan = max_rate(problem.restricted_to([EL, G, MONOLITH]), Budget(gpus=gpus))
    return plan.replicas, plan.rate / capacity(problem, {MONOLITH: gpus})[0]


def _factor_for(gpus: int) -> float:
    """Returns the monolith's α at which the plan has the printed gain, by bisection: the gain increases with α."""
    low, high = 1.0, 10.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if _gain(middle, gpus)[1] > PRINTED[gpus] else (middle, high)
    return low
