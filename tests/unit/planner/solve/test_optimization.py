"""Plans of problems whose optimal plan can be found by hand."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from cornserve_planner.errors import InfeasibleError, InvalidInputError, NoPlanFoundError
from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import GpuType, PlanningProblem, RequestPath
from cornserve_planner.model.solution import Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.explanation import utilization
from cornserve_planner.solve.optimization import max_rate, min_dollars, min_gpus
from cornserve_planner.solve.solver import SolverEngine, SolverSettings
from cornserve_planner.solve.strategies import strategy_costs, strategy_rates

E = DeploymentOption("E", ("encoder",), gpus=1, gpu="small")
L = DeploymentOption("L", ("llm",), gpus=1, gpu="large")
EL = DeploymentOption("EL", ("encoder", "llm"), gpus=1, gpu="large")
GPUS = {"small": GpuType("small", memory=24e9, price=0.5), "large": GpuType("large", memory=80e9, price=2.0)}


def problem(memory: dict[str, float] | None = None) -> PlanningProblem:
    """Returns a problem where an image takes 1 s of E and 1 s of L, or 3 s of EL. Text takes a little longer on EL than
    on L."""
    return PlanningProblem(
        options=(E, L, EL),
        shares={"text": 0.5, "image": 0.5},
        paths=(
            RequestPath("text", "L", {"L": 1.0}),
            RequestPath("text", "EL", {"EL": 1.2}),
            RequestPath("image", "E → L", {"E": 1.0, "L": 1.0}),
            RequestPath("image", "E → EL", {"E": 1.0, "EL": 1.2}),
            RequestPath("image", "EL", {"EL": 3.0}),
        ),
        gpus=GPUS,
        memory=memory or {},
    )


@pytest.mark.parametrize("engine", SolverEngine)
def test_separate_encoders_are_used_if_they_increase_the_rate(engine: SolverEngine) -> None:
    plan = max_rate(problem(), Budget(gpus=3), SolverSettings(engine))
    assert plan.replicas == {"E": 1, "L": 2}
    assert plan.rate == plan.bound == plan.value == pytest.approx(2.0)
    assert plan.relaxation == pytest.approx(2.0)
    assert (plan.proven, plan.gap, plan.gpus) == (True, 0, 3)
    assert plan.dollars == pytest.approx(4.5)
    assert sum(entry.rate for entry in plan.rates if entry.type == "image") == pytest.approx(1.0)


@pytest.mark.parametrize("engine", SolverEngine)
def test_one_gpu_runs_the_monolith(engine: SolverEngine) -> None:
    plan = max_rate(problem(), Budget(gpus=1), SolverSettings(engine))
    assert plan.replicas == {"EL": 1}
    assert plan.rate == pytest.approx(1 / 2.1)


@pytest.mark.parametrize("engine", SolverEngine)
def test_a_rate_is_served_with_the_fewest_gpus(engine: SolverEngine) -> None:
    plan = min_gpus(problem(), 2.0, solver=SolverSettings(engine))
    assert (plan.gpus, plan.value, plan.bound, plan.replicas) == (3, 3, 3, {"E": 1, "L": 2})
    assert plan.rate == 2.0
    assert plan.shares_of("image") == {"E → L": 1.0}


@pytest.mark.parametrize("engine", SolverEngine)
@pytest.mark.parametrize("excess", [1e-9, 1e-7, 1e-6, 3e-6])
def test_the_rate_of_a_plan_does_not_exceed_its_capacity(engine: SolverEngine, excess: float) -> None:
    target = 2.0 * (1 + excess)
    plan = min_gpus(problem(), target, solver=SolverSettings(engine))
    assert sum(entry.rate for entry in plan.rates) == pytest.approx(plan.rate, rel=1e-12)
    assert plan.rate <= plan.capacity
    assert plan.rate == pytest.approx(target, rel=1e-5)
    assert max(utilization(problem(), plan).values()) <= 1 + 1e-12


def test_types_with_share_zero_need_no_replicas() -> None:
    kinds = {"text": 1.0, "image": 0.0}
    without_images = replace(problem(), shares=kinds, paths=tuple(r for r in problem().paths if r.type == "text"))
    for unused in (replace(problem(), shares=kinds), without_images):
        assert max_rate(unused, Budget(gpus=3)).replicas == {"L": 3}
        assert min_gpus(unused, 2.5).replicas == {"L": 3}
        assert min_gpus(unused, 2.5).shares_of("image") == {}


@pytest.mark.parametrize("engine", SolverEngine)
@pytest.mark.parametrize("exponent", [4, 5, 6, 7, 9, 12])
def test_rare_types_are_served(engine: SolverEngine, exponent: int) -> None:
    rare = 10.0**-exponent
    options = tuple(DeploymentOption(name, tuple(name.lower())) for name in ("A", "B", "AB"))
    few = PlanningProblem(
        options,
        {"common": 1 - rare, "rare": rare},
        (
            RequestPath("common", "A", {"A": 1 / 12}),
            RequestPath("common", "AB", {"AB": 2.5}),
            RequestPath("rare", "AB", {"AB": 2.6}),
            RequestPath("rare", "A → AB", {"A": 1 / 12, "AB": 0.1}),
            RequestPath("rare", "A → B", {"A": 1 / 12, "B": 0.3}),
        ),
    )
    solver = SolverSettings(engine)
    assert max_rate(few, Budget(gpus=1), solver).replicas == {"AB": 1}
    two = max_rate(few, Budget(gpus=2), solver)
    assert (two.replicas, two.proven) == ({"A": 1, "AB": 1}, True)
    assert two.rate == pytest.approx(12.4, rel=1e-3)
    assert min_gpus(few, 20.0, solver=solver).replicas == {"A": 2, "B": 1}
    for rate in (1e-3, 1e-9):
        least = min_gpus(few, rate, solver=solver)
        assert (least.replicas, least.rate, least.proven) == ({"AB": 1}, rate, True)


def test_the_maximum_utilization_leaves_headroom() -> None:
    limited = replace(problem(), max_utilization=dict.fromkeys(("E", "L", "EL"), 0.5))
    plan = max_rate(limited, Budget(gpus=6))
    assert plan.replicas == {"E": 2, "L": 4}
    assert plan.rate == plan.capacity == pytest.approx(2.0)
    assert utilization(limited, plan) == {"E": pytest.approx(0.5), "L": pytest.approx(0.5)}
    assert min_gpus(limited, 1.0).replicas == {"E": 1, "L": 2}


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"X": 0.5}, r"max_utilization\.X: is not an option of the model: use one of E, L, EL"),
        ({"E": 0.0}, r"max_utilization\.E: must be greater than 0 and at most 1, not 0"),
        ({"E": 1.1}, r"max_utilization\.E: must be greater than 0 and at most 1, not 1\.1"),
        ({"E": float("nan")}, r"max_utilization\.E: must be greater than 0 and at most 1, not nan"),
    ],
)
def test_an_invalid_maximum_utilization_is_rejected(limits: dict[str, float], error: str) -> None:
    with pytest.raises(InvalidInputError, match=error):
        replace(problem(), max_utilization=limits)


def test_dollars_and_gpus_are_different_objectives() -> None:
    assert min_gpus(problem(), 0.4).replicas == {"EL": 1}
    assert min_dollars(problem(), 0.9).replicas == {"E": 1, "L": 1}
    assert min_dollars(problem(), 0.9).value == pytest.approx(2.5)


def test_budgets_can_limit_gpu_types_and_dollars() -> None:
    assert max_rate(problem(), Budget(gpus_of={"large": 2, "small": 0})).replicas == {"EL": 2}
    assert max_rate(problem(), Budget(dollars=2.6)).replicas == {"E": 1, "L": 1}


def test_a_budget_without_a_limit_for_some_gpus_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match="budget: 2 small leaves some options without a limit"):
        max_rate(problem(), Budget(gpus_of={"small": 2}))


@pytest.mark.parametrize("gpus", [True, 2.5, float("nan")])
def test_numbers_of_gpus_must_be_integers(gpus: int) -> None:
    with pytest.raises(InvalidInputError, match=r"budget\.gpus: must be a"):
        Budget(gpus=gpus)
    with pytest.raises(InvalidInputError, match=r"budget\.gpus\.large: must be a"):
        Budget(gpus_of={"large": gpus})


@pytest.mark.parametrize("rate", [1e16, 1e100, 1e300])
def test_a_rate_beyond_the_precision_of_solvers_is_rejected(rate: float) -> None:
    with pytest.raises(InvalidInputError, match=r"requests/s exceed the precision of the solvers for one plan"):
        min_gpus(problem(), rate)


def test_a_billion_gpus_are_planned_within_the_time_limit() -> None:
    plan = max_rate(problem(), Budget(gpus=1_000_000_000), SolverSettings(time_limit=0.0))
    assert plan.rate == pytest.approx(2e9 / 3)
    assert plan.bound == pytest.approx(2e9 / 3)


def test_of_equal_plans_the_one_with_the_fewest_components_is_chosen() -> None:
    never_encodes = replace(
        problem(),
        shares={"text": 0.0, "image": 1.0},
        paths=(
            RequestPath("image", "E → EL", {"E": 1.0, "EL": 1.0}),
            RequestPath("image", "E → L", {"E": 1.0, "L": 1.0}),
            RequestPath("image", "EL", {"EL": 3.0}),
        ),
    )
    assert max_rate(never_encodes, Budget(gpus=16)).replicas == {"E": 8, "L": 8}
    assert min_gpus(never_encodes, 8.0).replicas == {"E": 8, "L": 8}
    assert min_dollars(never_encodes, 8.0).replicas == {"E": 8, "L": 8}


def test_ties_are_broken_by_fewer_gpus_and_then_fewer_kinds() -> None:
    assert max_rate(problem(), Budget(gpus=4, dollars=4.6)).replicas == {"E": 1, "L": 2}
    same = PlanningProblem(
        options=tuple(DeploymentOption(name, ("llm",)) for name in "ABC"),
        shares={"text": 1.0},
        paths=tuple(RequestPath("text", name, {name: 1.0}) for name in "ABC"),
    )
    assert len(max_rate(same, Budget(gpus=8)).replicas) == 1
    assert len(min_gpus(same, 7.5).replicas) == 1


def test_an_option_that_does_not_fit_its_gpus_is_excluded_with_the_reason() -> None:
    tight = problem(memory={"EL": 90 * 2**30, "L": 60 * 2**30})
    assert tight.excluded == {"EL": "EL needs 90.0 GiB on each of its 1 large, which have 74.5 GiB"}
    assert max_rate(tight, Budget(gpus=2)).replicas == {"E": 1, "L": 1}


def test_an_infeasible_constraint_is_reported_with_numbers() -> None:
    with pytest.raises(InfeasibleError, match=r"type text \(50\.0% of the requests\) has no path: L needs 90\.0 GiB"):
        max_rate(problem(memory={"EL": 90 * 2**30, "L": 90 * 2**30}), Budget(gpus=8))
    with pytest.raises(
        InfeasibleError, match=r"budget of 1 GPU: .* at least 2 GPUs: one replica each of E \(1 GPU\), L"
    ):
        max_rate(problem(memory={"EL": 90 * 2**30}), Budget(gpus=1))
    with pytest.raises(
        InfeasibleError, match=r"budget of \$1 an hour: .* at least \$2 an hour: one replica each of EL"
    ):
        max_rate(problem(), Budget(dollars=1.0))
    with pytest.raises(
        InfeasibleError, match=r"budget of 5 GPUs, 0 large: .* at least 1 large: one replica each of EL"
    ):
        max_rate(problem(), Budget(gpus=5, gpus_of={"large": 0}))
    with pytest.raises(InfeasibleError, match=r"budget of 3 GPUs: 5 requests/s are requested, but at most 2 can"):
        min_gpus(problem(), 5.0, Budget(gpus=3))


@pytest.mark.parametrize("engine", SolverEngine)
def test_a_stopped_search_returns_a_bound(engine: SolverEngine) -> None:
    plan = first_plan(engine)
    assert plan.rate == plan.value <= plan.bound <= plan.relaxation * (1 + 1e-6)
    assert plan.proven == (plan.gap == 0)
    for name, fraction in utilization(large(), plan).items():
        assert fraction <= 1 + 1e-9, name


def first_plan(engine: SolverEngine) -> Solution:
    """Returns the plan of a search that stops at its first solution, on machines of any speed."""
    for limit in (0.1 * 2**doubled for doubled in range(10)):
        with suppress(NoPlanFoundError):
            return max_rate(large(), Budget(gpus=64), SolverSettings(engine, limit))
    raise AssertionError("there is no plan")


def large() -> PlanningProblem:
    """Returns a problem whose types share options, so that a search takes seconds."""
    draw = Random(4)
    options = tuple(DeploymentOption(f"option{index}", ("part",), draw.choice([1, 1, 2])) for index in range(28))
    paths = tuple(
        RequestPath(
            f"type{kind}",
            f"path{kind}.{index}",
            {options[i].name: draw.uniform(0.1, 3.0) for i in draw.sample(range(28), draw.randint(1, 3))},
        )
        for kind in range(16)
        for index in range(5)
    )
    return PlanningProblem(options, {f"type{kind}": 1 / 16 for kind in range(16)}, paths)


def test_a_search_without_time_returns_the_best_fixed_strategy() -> None:
    plan = max_rate(problem(), Budget(gpus=8), SolverSettings(time_limit=0.0))
    assert plan.value == pytest.approx(strategy_rates(problem(), Budget(gpus=8))[0].rate)
    assert plan.value <= plan.bound <= plan.relaxation
    least = min_gpus(problem(), 5.0, solver=SolverSettings(time_limit=0.0))
    assert least.value == strategy_costs(problem(), 5.0)[0].gpus
    assert least.value >= least.bound >= least.relaxation


def test_a_search_without_time_can_find_no_plan() -> None:
    with pytest.raises(NoPlanFoundError, match=r"highs found no plan in 0\.0 s: raise the time limit"):
        max_rate(large(), Budget(gpus=64), SolverSettings(time_limit=0.0))
    with pytest.raises(NoPlanFoundError, match="highs found no plan"):
        min_gpus(large(), 10.0, solver=SolverSettings(time_limit=0.0))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(InvalidInputError, match="rate: must be a finite number greater than 0"):
        min_gpus(problem(), rate)


@pytest.mark.parametrize(
    ("shares", "seconds", "error"),
    [
        ({"text": 0.9}, 1.0, "types: the shares add up to 0.9, not to 1"),
        ({"text": -0.1, "image": 1.1}, 1.0, r"types\.text\.share: must be a finite number of at least 0, not -0\.1"),
        ({"text": float("nan")}, 1.0, r"types\.text\.share: must be a finite number of at least 0, not nan"),
        ({}, 1.0, "types: must not be empty"),
        ({"text": 1.0}, -1.0, "seconds of L for text on L: must be a finite number greater than 0, not -1"),
        ({"text": 1.0}, float("inf"), "seconds of L for text on L: must be a finite number greater than 0, not inf"),
        (
            {"text": 1.0},
            1e300,
            r"seconds of L for text on L: must be from 1e-08 to 1e\+06, not 1e\+300: correct the rates",
        ),
        ({"text": 1.0}, 1e-300, r"seconds of L for text on L: must be from 1e-08 to 1e\+06, not 1e-300: correct the"),
        ({"image": 1.0}, 1.0, "'text' is not a request type of the workload"),
    ],
)
def test_an_invalid_problem_is_rejected(shares: dict[str, float], seconds: float, error: str) -> None:
    with pytest.raises(InvalidInputError, match=error):
        PlanningProblem(options=(L,), shares=shares, paths=(RequestPath("text", "L", {"L": seconds}),))
