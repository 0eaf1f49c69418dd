"""The growth of a cell's rate when its GPUs double: Qwen3-Omni's 2.68× [C §7.2, Figures 6b and 7]."""

from __future__ import annotations

from benchmarks.reproduction.markdown import prose, table
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.cells import solve_cells
from cornserve_planner.solve.optimization import max_rate

AT_8 = {"thinker": 1, "talker": 5, "vocoder": 1}
AT_16 = {"thinker": 3, "talker+vocoder": 10}
CUT = {"thinker": 2, "talker+vocoder": 4}
MODELS = ("qwen2.5-omni-7b", "internvl3-38b", "qwen2.5-vl-32b")


def section() -> str:
    at_8, at_16 = (_best(gpus, replicas) for gpus, replicas in ((8, AT_8), (16, AT_16)))
    assert capacity(EXAMPLE, CUT)[0] >= 0.4 * at_16 * (1 - 1e-6)
    return prose("growth").format(
        at_8=at_8,
        at_16=at_16,
        models=table(
            ["", *(f"{1 << exponent} GPU{'s' * (exponent > 0)}" for exponent in range(7))], map(_cells, MODELS)
        ),
    )


EXAMPLE = PlanningProblem(
    (
        DeploymentOption("thinker", ("thinker",), gpus=2),
        DeploymentOption("talker", ("talker",)),
        DeploymentOption("vocoder", ("vocoder",)),
        DeploymentOption("talker+vocoder", ("talker", "vocoder")),
    ),
    {"speech": 1.0},
    (
        RequestPath("speech", "apart", {"thinker": 1.0, "talker": 1 / 0.3, "vocoder": 1 / 1.5}),
        RequestPath("speech", "together", {"thinker": 1.0, "talker+vocoder": 1 / 0.3 + 1 / 1.5}),
    ),
)


def _best(gpus: int, printed: dict[str, int]) -> float:
    """Returns the rate of the printed plan. Raises `AssertionError` if another plan serves more."""
    rate = capacity(EXAMPLE, printed)[0]
    assert abs(rate - max_rate(EXAMPLE, Budget(gpus=gpus)).rate) < 1e-6
    return rate


def _cells(model: str) -> list[object]:
    factors = {"encoders": 1.0, "encoders+llm": 1.0, "monolith": 3.0} if "omni" in model else None
    cells = solve_cells(load_inputs(model, factors=factors).problem)
    row: list[object] = [f"{model}{', α of the monolith 3' if factors else ''}"]
    for cell, half in zip(cells, [None, *cells], strict=False):
        times = f" ({cell.rate / half.rate:.2f}×)" if half is not None and half.rate else ""
        row.append(f"{cell.rate:.2f}{times}")
    return row
