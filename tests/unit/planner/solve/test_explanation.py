"""Fixed strategies and explanations of plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import GpuType, PlanningProblem, RequestPath
from cornserve_planner.model.solution import Objective
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.explanation import explain_plan, utilization
from cornserve_planner.solve.optimization import max_rate, min_dollars, min_gpus
from cornserve_planner.solve.strategies import fixed_strategies, strategy_costs, strategy_rates


def role_sets() -> PlanningProblem:
    """Returns a problem with encode, prefill and decode, together and apart. A separate encoder is twice as fast."""
    names = {"E": "e", "P": "p", "D": "d", "EP": "ep", "PD": "pd", "EPD": "epd"}
    seconds = {"e": 1.0, "p": 1.0, "d": 2.0}
    options = tuple(DeploymentOption(name, tuple(parts), gpu="gpu") for name, parts in names.items())

    def path(name: str) -> RequestPath:
        steps = name.split(" → ")
        return RequestPath(
            "image", name, {s: sum(seconds[c] for c in names[s]) * (0.5 if s == "E" else 1) for s in steps}
        )

    names_of_paths = ("EPD", "E → PD", "EP → D", "E → P → D", "E → EPD")
    paths = [path(name) for name in names_of_paths[:4]] + [RequestPath("image", "E → EPD", {"E": 0.5, "EPD": 3.3})]
    return PlanningProblem(options, {"image": 1.0}, tuple(paths), {"gpu": GpuType("gpu", price=2.0)})


def test_fixed_strategies_run_every_component_on_one_option() -> None:
    assert [strategy.name for strategy in fixed_strategies(role_sets())] == ["EPD", "D / EP", "E / PD", "E / P / D"]
    assert [strategy.monolithic for strategy in fixed_strategies(role_sets())] == [True, False, False, False]


def test_replicas_of_a_strategy_follow_from_its_load() -> None:
    reached = {found.name: found for found in strategy_rates(role_sets(), Budget(gpus=7))}
    assert reached["E / PD"].replicas == {"E": 1, "PD": 6}
    assert reached["E / PD"].rate == pytest.approx(2.0)
    assert reached["EPD"].rate == pytest.approx(7 / 4)
    assert reached["E / PD, evenly"].replicas == {"E": 3, "PD": 3}
    assert reached["E / PD, evenly"].rate == pytest.approx(1.0)
    assert reached["E / P / D, evenly"].replicas == {"E": 2, "P": 2, "D": 2}


def test_strategies_that_do_not_fit_are_omitted() -> None:
    assert [found.name for found in strategy_rates(role_sets(), Budget(gpus=1))] == ["EPD"]


def test_strategies_have_a_cost_for_a_rate() -> None:
    costs = {found.name: found for found in strategy_costs(role_sets(), 2.0, Objective.DOLLARS)}
    assert costs["E / PD"].gpus == 7
    assert costs["E / PD"].dollars == 14.0
    assert costs["EPD"].gpus == 8
    assert costs["E / PD, evenly"].gpus == 12
    assert next(iter(costs)) == "E / PD"


def test_an_explanation_contains_the_binding_constraint_and_the_gain_of_one_more_replica() -> None:
    problem, budget = role_sets(), Budget(gpus=7)
    plan = max_rate(problem, budget)
    why = explain_plan(problem, plan, budget)
    assert plan.replicas == {"E": 1, "PD": 6}
    assert why.limiting == ("E", "PD")
    assert why.binding == "the budget of 7 GPUs: E, PD are at their maximum utilization at 2 requests/s"
    assert why.one_more == {"E": 0.0, "PD": 0.0}
    assert why.gain == pytest.approx(1.0)
    assert plan.relaxation == pytest.approx(2.0)


def test_utilization_refers_to_the_target_rate() -> None:
    problem = role_sets()
    plan = min_gpus(problem, 1.6)
    assert plan.capacity >= plan.rate == 1.6
    assert max(utilization(problem, plan).values()) == pytest.approx(plan.rate / plan.capacity)
    assert explain_plan(problem, plan).binding.startswith("the rate of 1.6 requests/s: ")


def test_plans_for_dollars_are_compared_in_dollars() -> None:
    problem = role_sets()
    plan = min_dollars(problem, 2.0)
    assert explain_plan(problem, plan).gain == pytest.approx(1.0)
    assert plan.value == 14.0


def test_limiting_options_reach_their_own_maximum_utilization() -> None:
    problem, budget = role_sets(), Budget(gpus=7)
    problem = replace(problem, max_utilization={option.name: 0.6 for option in problem.options} | {"E": 0.9})
    plan = max_rate(problem, budget)
    why = explain_plan(problem, plan, budget)
    assert plan.replicas == {"E": 1, "PD": 6}
    assert plan.rate == pytest.approx(6 * 0.6 / 3)
    assert why.utilization == {"E": pytest.approx(0.6), "PD": pytest.approx(0.6)}
    assert why.limiting == ("PD",)
    assert why.strategies[0].rate == pytest.approx(plan.rate)
