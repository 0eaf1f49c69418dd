"""Qwen-Image: why the monolith is best [C §7.3.3]."""

from __future__ import annotations

from benchmarks.reproduction.markdown import prose, replicas, table
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate

SHORT = {"monolith": "monoliths", "llm": "language model", "image_generator": "generators"}
GPUS = 16
FACTORS = (1.0, 1.05, 1.06, 1.2)


def section() -> str:
    rows = []
    for factor in FACTORS:
        plan = max_rate(load_inputs("qwen-image", factors={"monolith": factor}).problem, Budget(gpus=GPUS))
        rows.append([f"{factor:g}", replicas(plan.replicas, SHORT), f"{plan.rate:.3f}"])
    together = 1 / 15.67 + 1 / 0.20
    apart = (GPUS - 1) * 0.20
    return prose("image").format(
        plans=table(["α", "best plan", "requests/s"], rows, text=2), limit=GPUS / apart / together
    )
