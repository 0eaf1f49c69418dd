"""The certainty of plans: intervals of rates, and the estimates that the plans depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cornserve_planner.inputs.planning_inputs import PlanInputs, load_inputs
from cornserve_planner.planning.confidence import PlanConfidence, estimate_sources, plan_confidence
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate

BUDGET = Budget(gpus=16)


def confidence_of(
    inputs: PlanInputs, factors: Mapping[str, float] | None = None, *, every_option: bool = False
) -> PlanConfidence:
    """Returns the confidence of the plan with the highest rate."""
    plans = [(1, max_rate(inputs.problem, BUDGET))]
    sources = estimate_sources(inputs, factors or {})
    return plan_confidence(inputs.problem, inputs, sources, plans, BUDGET, every_option=every_option)


def test_a_plan_of_monoliths_depends_on_the_predicted_time_of_the_monolith() -> None:
    inputs = load_inputs("qwen2.5-omni-7b")
    plan = max_rate(inputs.problem, BUDGET)
    confidence = confidence_of(inputs)

    assert plan.replicas == {"monolith": 16}
    assert confidence.weakest is not None
    assert confidence.weakest.option == "monolith"
    assert 1 < confidence.weakest.times < 1.1
    source = confidence.sources["monolith"]
    assert (source.tag, source.certain) == ("predicted", False)
    assert source.text == "sum of its components' times, without interference (α = 1)"
    assert confidence.low < plan.rate < confidence.high


def test_an_assumed_factor_is_uncertain() -> None:
    factors = {"monolith": 1.0}
    inputs = load_inputs("qwen-image", factors=factors)
    confidence = confidence_of(inputs, factors)

    assert confidence.sources["monolith"].text == "assumed factor 1"
    assert confidence.weakest is not None
    assert confidence.weakest.option == "monolith"


def test_options_that_were_measured_are_searched_on_request() -> None:
    inputs = load_inputs("qwen-image")

    assert {change.option for change in confidence_of(inputs).changes} == {"monolith"}
    every = confidence_of(inputs, every_option=True)
    assert {change.option for change in every.changes} == {"monolith", "image_generator"}


def test_the_interval_of_the_rate_is_at_the_utilization_of_the_plan() -> None:
    inputs = load_inputs("qwen-image")
    full = confidence_of(inputs)
    problem = replace(inputs.problem, max_utilization=dict.fromkeys(inputs.problem.option, 0.5))
    half = confidence_of(replace(inputs, problem=problem))

    assert (half.low, half.high) == pytest.approx((full.low / 2, full.high / 2))
