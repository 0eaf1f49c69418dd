"""Plans of hundreds of small problems (thousands in the slow tier) equal those found by enumeration, with ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cornserve_planner.errors import InfeasibleError
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Objective, Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate, min_dollars, min_gpus
from cornserve_planner.solve.solver import SolverEngine, SolverSettings
from cornserve_planner.solve.strategies import strategy_costs, strategy_rates
from tests.unit.planner.brute_force import CLOSE, Array, BruteForce, problems
from tests.unit.planner.examples import examples

GPUS = 6


def least(values: Array, among: Array) -> Array:
    """Returns a mask of the plans with the minimum among some plans."""
    return among & (values <= values[among].min() + CLOSE)


def assert_smallest(plan: Solution, problem: PlanningProblem, every: BruteForce, among: Array) -> None:
    """Asserts that no other plan has fewer GPUs, or then fewer kinds, or then fewer components."""
    best = least(every.gpus_of, among)
    assert plan.gpus == every.gpus_of[best].min()
    best = least(every.kinds_of, best)
    assert len(plan.replicas) == every.kinds_of[best].min()
    components = sum(len(problem.option[name].components) * count for name, count in plan.replicas.items())
    assert components == every.components_of[best].min()


@examples(100, 800)
def test_no_plan_within_a_budget_serves_more(examples: int) -> None:
    @given(problems, st.integers(1, GPUS))
    @settings(derandomize=True, max_examples=examples)
    def check(problem: PlanningProblem, gpus: int) -> None:
        every = BruteForce(problem, gpus)
        if every.rates.max() == 0:
            with pytest.raises(InfeasibleError, match="the budget of"):
                max_rate(problem, Budget(gpus=gpus))
            return
        plan = max_rate(problem, Budget(gpus=gpus))
        assert plan.proven
        assert plan.ties_settled
        assert plan.rate == pytest.approx(every.rates.max(), rel=CLOSE)
        assert plan.rate <= plan.bound <= plan.relaxation
        assert_smallest(plan, problem, every, every.serving(every.rates.max()))
        for reached in strategy_rates(problem, Budget(gpus=gpus)):
            assert reached.rate <= plan.rate * (1 + CLOSE)

    check()


@examples(100, 800)
def test_no_plan_serves_a_rate_with_fewer_gpus_or_dollars(examples: int) -> None:
    @given(problems, st.integers(1, 64))
    @settings(derandomize=True, max_examples=examples)
    def check(problem: PlanningProblem, percent: int) -> None:
        every = BruteForce(problem, GPUS)
        rate = every.rates.max() * percent / 64
        if rate == 0:
            return
        serving = every.serving(rate)
        plan = min_gpus(problem, rate)
        assert_smallest(plan, problem, every, serving)
        assert plan.relaxation <= plan.bound <= plan.value == plan.gpus
        assert plan.ties_settled
        assert plan.capacity >= plan.rate == pytest.approx(rate, rel=CLOSE)
        cheap = min_dollars(problem, rate, Budget(gpus=GPUS))
        best = least(every.dollars_of, serving)
        assert cheap.value == pytest.approx(every.dollars_of[best].min())
        assert_smallest(cheap, problem, every, best)
        for reached in strategy_costs(problem, rate):
            assert reached.value(Objective.GPUS) >= plan.gpus

    check()


@examples(60, 300)
def test_no_plan_serves_more_after_the_loss_of_a_replica(examples: int) -> None:
    @given(problems, st.integers(1, GPUS))
    @settings(derandomize=True, max_examples=examples)
    def check(problem: PlanningProblem, gpus: int) -> None:
        every = BruteForce(problem, gpus)
        rates = every.rates_after_a_loss
        if rates.max() == 0:
            with pytest.raises(InfeasibleError, match="to serve every type after the loss of a replica, a plan needs"):
                max_rate(problem, Budget(gpus=gpus), survive=True)
            return
        plan = max_rate(problem, Budget(gpus=gpus), survive=True)
        assert plan.proven
        assert plan.ties_settled
        assert plan.survives
        assert plan.rate == pytest.approx(rates.max(), rel=CLOSE)
        assert plan.rate <= plan.capacity
        assert plan.rate <= plan.bound <= plan.relaxation
        assert_smallest(plan, problem, every, rates >= rates.max() * (1 - CLOSE))

    check()


@examples(60, 300)
def test_no_plan_serves_a_rate_after_a_loss_with_fewer_gpus_or_dollars(examples: int) -> None:
    @given(problems, st.integers(1, 64))
    @settings(derandomize=True, max_examples=examples)
    def check(problem: PlanningProblem, percent: int) -> None:
        every = BruteForce(problem, GPUS)
        rate = every.rates_after_a_loss.max() * percent / 64
        if rate == 0:
            return
        serving = every.rates_after_a_loss >= rate * (1 - CLOSE)
        plan = min_gpus(problem, rate, survive=True)
        assert_smallest(plan, problem, every, serving)
        assert plan.capacity >= plan.rate == pytest.approx(rate, rel=CLOSE)
        cheap = min_dollars(problem, rate, Budget(gpus=GPUS), survive=True)
        best = least(every.dollars_of, serving)
        assert cheap.value == pytest.approx(every.dollars_of[best].min())
        assert_smallest(cheap, problem, every, best)

    check()


@examples(80, 400)
def test_budgets_of_gpu_types_and_dollars_are_kept(examples: int) -> None:
    @given(problems, st.integers(0, GPUS), st.integers(0, GPUS), st.sampled_from([None, 3.0, 6.5]))
    @settings(derandomize=True, max_examples=examples)
    def check(problem: PlanningProblem, a: int, b: int, dollars: float | None) -> None:
        every = BruteForce(problem, a + b)
        within: Array = np.ones(len(every.rates), dtype=bool)
        for name, limit in (("A", a), ("B", b)):
            used = every.replicas @ [option.gpus * (option.gpu == name) for option in problem.options]
            within &= used <= limit
        if dollars is not None:
            within &= every.dollars_of <= dollars + CLOSE
        budget = Budget(gpus_of={"A": a, "B": b}, dollars=dollars)
        if every.rates[within].max() == 0:
            with pytest.raises(InfeasibleError):
                max_rate(problem, budget)
        else:
            assert max_rate(problem, budget).rate == pytest.approx(every.rates[within].max(), rel=CLOSE)

    check()


@examples(10, 25)
def test_highs_and_cbc_agree(examples: int) -> None:
    @given(problems, st.integers(2, 24))
    @settings(derandomize=True, max_examples=examples)
    def check(problem: PlanningProblem, gpus: int) -> None:
        plans = [max_rate(problem, Budget(gpus=gpus + 6), SolverSettings(engine)) for engine in SolverEngine]
        assert plans[0].rate == pytest.approx(plans[1].rate, rel=CLOSE)
        assert plans[0].gpus == plans[1].gpus
        assert len(plans[0].replicas) == len(plans[1].replicas)
        fewest = [min_gpus(problem, plans[0].rate * 0.9, solver=SolverSettings(engine)) for engine in SolverEngine]
        assert fewest[0].gpus == fewest[1].gpus
        assert len(fewest[0].replicas) == len(fewest[1].replicas)

    check()
