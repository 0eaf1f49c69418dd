"""Changes of an option's time that make another plan better."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.optimization import max_rate
from cornserve_planner.solve.sensitivity import EXAMPLE, MATERIAL, PRECISION, WIDEST, plan_changes, scaled
from tests.unit.planner.brute_force import CLOSE, BruteForce, problems
from tests.unit.planner.examples import examples


def monolith_or_split(monolith: float) -> PlanningProblem:
    """Returns a problem in which four GPUs serve two requests/s with two encoders and two language models."""
    options = (
        DeploymentOption("encoder", ("encoder",)),
        DeploymentOption("llm", ("llm",)),
        DeploymentOption("monolith", ("encoder", "llm")),
    )
    paths = (
        RequestPath("image", "monolith", {"monolith": monolith}),
        RequestPath("image", "encoder → llm", {"encoder": 1.0, "llm": 1.0}),
    )
    return PlanningProblem(options, {"image": 1.0}, paths)


def test_the_time_at_which_a_monolith_is_no_longer_best_is_found() -> None:
    (slower,) = plan_changes(monolith_or_split(1.6), {"monolith": 4}, Budget(gpus=4), ["monolith"])
    assert slower.option == "monolith"
    assert slower.times == pytest.approx(2.0 * (1 + MATERIAL) / 1.6, rel=PRECISION - 1)
    assert slower.replicas == {"encoder": 2, "llm": 2}
    assert slower.example == slower.times * EXAMPLE
    assert (slower.served, slower.better) == pytest.approx((1 / slower.example, 1.6 / 2.0))


def test_options_that_the_plan_does_not_use_change_it_when_they_are_faster() -> None:
    changes = plan_changes(monolith_or_split(2.1), {"encoder": 2, "llm": 2}, Budget(gpus=4), ["monolith"])
    assert [change.replicas for change in changes] == [{"monolith": 4}]
    assert changes[0].times == pytest.approx(2 / 2.1 / (1 + MATERIAL), rel=PRECISION - 1)
    assert changes[0].example == changes[0].times / EXAMPLE
    assert (changes[0].served, changes[0].better) == pytest.approx((1.0, 2 / 2.1 / changes[0].example))


def test_options_on_no_path_change_nothing() -> None:
    problem = monolith_or_split(1.6).restricted_to(["monolith"])
    assert plan_changes(problem, {"monolith": 4}, Budget(gpus=4), ["encoder", "llm"]) == ()


@examples(12, 60)
def test_changes_agree_with_an_enumeration_of_all_plans(examples: int) -> None:
    @given(problems, st.integers(1, 5))
    @settings(derandomize=True, max_examples=examples)
    def check(problem: PlanningProblem, gpus: int) -> None:
        budget = Budget(gpus=gpus)
        assume(BruteForce(problem, gpus).rates.max() > 0)
        replicas = max_rate(problem, budget).replicas
        changes = plan_changes(problem, replicas, budget, problem.option)
        for option in problem.option:
            bounds = {change.times > 1: change for change in changes if change.option == option}
            for slower, widest in ((True, WIDEST), (False, 1 / WIDEST)):
                change = bounds.get(slower)
                # The search does not separate factors that are closer than its precision.
                within = (change.times / PRECISION if slower else change.times * PRECISION) if change else widest
                at = scaled(problem, option, within)
                assert BruteForce(at, gpus).rates.max() <= capacity(at, replicas)[0] * (1 + MATERIAL) * (1 + CLOSE)
                if change is not None:
                    beyond = scaled(problem, option, change.times)
                    assert budget.allows(problem, change.replicas)
                    wanted = capacity(beyond, replicas)[0] * (1 + MATERIAL)
                    assert capacity(beyond, change.replicas)[0] >= wanted * (1 - CLOSE)

    check()
