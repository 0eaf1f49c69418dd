"""Budgets of GPUs that are not powers of two."""

from __future__ import annotations

import pytest

from cornserve_planner.planning.model_plan import CELL_LOSS, make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate


@pytest.mark.parametrize(
    ("model", "gpus", "factors"),
    [
        ("qwen2.5-vl-32b", 3, {"monolith": 1.5}),
        *(("internvl3-38b", gpus, {}) for gpus in (3, 5, 6, 7, 15)),
    ],
)
def test_no_budget_serves_notably_less_than_one_plan(model: str, gpus: int, factors: dict[str, float]) -> None:
    found = make_plan(PlanRequest(model, gpus=gpus, factors=factors))
    best = max_rate(found.inputs.problem, Budget(gpus=gpus)).rate
    assert found.file.rate * (1 + CELL_LOSS) >= best
    assert sum(found.file.total_gpus.values()) <= gpus


def test_cells_are_used_for_a_power_of_two() -> None:
    assert not make_plan(PlanRequest("internvl3-38b", gpus=8)).whole
