from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cornserve_planner.errors import InfeasibleError, InvalidInputError
from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.solution import Loss
from cornserve_planner.solve import optimization, placement
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.placement import PlacedPlan
from cornserve_planner.solve.solver import SolverEngine, SolverSettings
from cornserve_planner.solve.topology_milp import Traffic
from tests.unit.planner.brute_force import random_problem
from tests.unit.planner.examples import examples, seeds
from tests.unit.planner.placements_by_brute_force import best_rate, random_cluster, random_traffic

MB = 1e6
ENCODER = DeploymentOption("E", ("encoder",))
LLM = DeploymentOption("L", ("llm",))
BOTH = DeploymentOption("EL", ("encoder", "llm"))

APART = PlanningProblem((ENCODER, LLM), {"image": 1.0}, (RequestPath("image", "E → L", {"E": 1.0, "L": 3.0}),))
"""One encoder can feed three language models, at one request per second."""


def one_megabyte(path: RequestPath) -> Mapping[tuple[str, str], float]:
    return dict.fromkeys(itertools.pairwise(path.seconds), MB)


def problem(encode: float, generate: float, together: float, images: float) -> PlanningProblem:
    """Returns a problem with the seconds of E, L and EL for a request with an image, and the share of such requests."""
    return PlanningProblem(
        (ENCODER, LLM, BOTH),
        {"image": images, "text": 1 - images},
        (
            RequestPath("image", "E → L", {"E": encode, "L": generate}),
            RequestPath("image", "E → EL", {"E": encode, "EL": generate}),
            RequestPath("image", "EL", {"EL": together}),
            RequestPath("text", "L", {"L": generate}),
            RequestPath("text", "EL", {"EL": generate}),
        ),
    )


problems = st.builds(
    problem,
    encode=st.sampled_from([0.2, 0.5, 1.0, 2.0]),
    generate=st.sampled_from([0.3, 1.0, 1.5]),
    together=st.sampled_from([1.0, 1.6, 2.5, 4.0]),
    images=st.sampled_from([0.25, 0.5, 1.0]),
)


@pytest.mark.parametrize(
    ("bandwidth", "rate"),
    [
        (math.inf, 1.0),
        (2 / 3 * MB, 1.0),  # the load of the two language models on the other node
        (0.5 * MB, 1 / 3 + 0.5),
        (0.25 * MB, 2 / 3),  # A slow network serves less than two separate nodes.
        (0.0, 2 / 3),
    ],
)
@pytest.mark.parametrize("engine", SolverEngine)
def test_bandwidth_limits_the_rate_as_computed_by_hand(bandwidth: float, rate: float, engine: SolverEngine) -> None:
    placed = placement.max_rate(APART, Cluster.uniform(2, 2, bandwidth), one_megabyte, SolverSettings(engine))

    assert placed.plan.rate == pytest.approx(rate)
    assert placed.plan.bound == pytest.approx(rate)
    assert placed.plan.proven
    assert placed.unconstrained == pytest.approx(1.0)
    assert placed.bytes_per_second(0, 1) <= bandwidth * (1 + 1e-9)
    assert placed.bytes_per_second(1, 0) <= bandwidth * (1 + 1e-9)


def test_a_link_limits_traffic_in_its_direction_only() -> None:
    wide = PlanningProblem(
        (ENCODER, DeploymentOption("L", ("llm",), gpus=3)),
        {"image": 1.0},
        (RequestPath("image", "E → L", {"E": 1.0, "L": 1.0}),),
    )
    to_the_language_model = Cluster((1, 3), ((0.0, MB), (0.0, 0.0)))
    from_the_language_model = Cluster((1, 3), ((0.0, 0.0), (MB, 0.0)))

    assert placement.max_rate(wide, to_the_language_model, one_megabyte).plan.rate == pytest.approx(1.0)
    with pytest.raises(InfeasibleError, match="some request type cannot be served over"):
        placement.max_rate(wide, from_the_language_model, one_megabyte)


def test_the_maximum_utilization_limits_replicas_on_nodes() -> None:
    limited = replace(APART, max_utilization={"L": 0.5})
    placed = placement.max_rate(limited, Cluster.uniform(2, 2, math.inf), one_megabyte)

    assert placed.plan.rate == pytest.approx(0.5)
    assert placement.min_gpus(limited, Cluster.uniform(2, 2, math.inf), one_megabyte, 0.5).plan.gpus == 4


def test_an_edge_without_traffic_needs_no_link() -> None:
    placed = placement.max_rate(APART, Cluster.uniform(2, 2, 0.0), lambda path: {})

    assert placed.plan.rate == pytest.approx(1.0)
    assert placed.flows == ()


@examples(8, 25)
def test_with_enough_bandwidth_several_nodes_equal_one(examples: int) -> None:
    @given(problems, st.sampled_from([1, 2, 3]))
    @settings(derandomize=True, max_examples=examples)
    def check(instance: PlanningProblem, gpus: int) -> None:
        free = optimization.max_rate(instance, Budget(gpus=2 * gpus))
        placed = placement.max_rate(instance, Cluster.uniform(2, gpus, math.inf), one_megabyte)

        assert placed.plan.rate == pytest.approx(free.rate)
        assert placed.plan.proven

    check()


@examples(8, 25)
def test_no_replica_and_no_link_is_overloaded(examples: int) -> None:
    @given(problems, st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0]), min_size=2, max_size=2))
    @settings(derandomize=True, max_examples=examples)
    def check(instance: PlanningProblem, bandwidths: list[float]) -> None:
        there, back = (bandwidth * MB for bandwidth in bandwidths)
        cluster = Cluster((2, 1), ((0.0, there), (back, 0.0)))
        placed = placement.max_rate(instance, cluster, one_megabyte)

        assert placed.bytes_per_second(0, 1) <= there * (1 + 1e-9)
        assert placed.bytes_per_second(1, 0) <= back * (1 + 1e-9)
        assert placed.plan.rate <= capacity(instance, placed.plan.replicas)[0] * (1 + 1e-6)
        assert placed.plan.rate <= placed.plan.bound <= placed.unconstrained * (1 + 1e-6)
        for node, gpus in enumerate(cluster.gpus):
            assert sum(counts[node] for counts in placed.replicas.values()) <= gpus
        _check_shares(placed, instance)

    check()


def _check_shares(placed: PlacedPlan, instance: PlanningProblem) -> None:
    for name, share in instance.shares.items():
        rate = sum(entry.rate for entry in placed.plan.rates if entry.type == name)
        assert rate == pytest.approx(share * placed.plan.rate, abs=1e-7)


def test_min_gpus_places_the_fewest_gpus_for_a_rate() -> None:
    near, far = Cluster.uniform(2, 4, math.inf), Cluster.uniform(2, 4, 0.0)

    assert placement.min_gpus(APART, near, one_megabyte, 0.5).plan.gpus == 3  # one encoder, two language models
    assert placement.min_gpus(APART, near, one_megabyte, 1.2).plan.gpus == 6  # two and four
    assert placement.min_gpus(APART, far, one_megabyte, 1.2).plan.gpus == 6
    assert placement.min_gpus(APART, far, one_megabyte, 4 / 3).plan.gpus == 6
    spread = placement.min_gpus(APART, near, one_megabyte, 1.2)
    assert spread.plan.rate == pytest.approx(1.2)
    assert spread.plan.proven


def test_a_rate_above_the_network_limit_is_infeasible_with_the_highest_rate() -> None:
    with pytest.raises(
        InfeasibleError, match=r"bandwidth: 0.9 requests/s are requested.* at most 0.6667 .*limits: 1\)$"
    ):
        placement.min_gpus(APART, Cluster.uniform(2, 2, 0.0), one_megabyte, 0.9)


def test_a_rate_that_no_cluster_serves_is_infeasible_as_without_a_network() -> None:
    with pytest.raises(InfeasibleError, match="4 GPUs"):
        placement.min_gpus(APART, Cluster.uniform(2, 2, math.inf), one_megabyte, 5.0)


def test_nodes_too_small_for_an_edge_without_a_link_are_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="some request type cannot be served over"):
        placement.max_rate(APART, Cluster.uniform(2, 1, 0.0), one_megabyte)


def test_replicas_do_not_span_nodes() -> None:
    wide = PlanningProblem(
        (DeploymentOption("EL", ("encoder", "llm"), gpus=2),),
        {"image": 1.0},
        (RequestPath("image", "EL", {"EL": 1.0}),),
    )

    assert placement.max_rate(wide, Cluster.uniform(2, 3, math.inf), one_megabyte).replicas == {"EL": (1, 1)}


def test_a_sufficient_gap_is_reported() -> None:
    instance = problem(0.2, 1.0, 1.6, 0.5)
    placed = placement.max_rate(instance, Cluster.uniform(3, 3, 0.1 * MB), one_megabyte, SolverSettings(gap=0.9))

    assert placed.plan.rate <= placed.plan.bound
    assert placed.plan.proven == (placed.plan.gap < 1e-6)


@pytest.mark.parametrize(
    ("gpus", "bandwidth", "field"),
    [
        ((), (), "cluster.gpus"),
        ((-1,), ((0.0,),), "cluster.gpus.0"),
        ((1, 1), ((0.0, 1.0),), "cluster.bandwidth"),
        ((1, 1), ((0.0, -1.0), (1.0, 0.0)), "cluster.bandwidth.0.1"),
        ((1, 1), ((0.0, 1.0), (math.nan, 0.0)), "cluster.bandwidth.1.0"),
    ],
)
def test_an_invalid_cluster_is_rejected(
    gpus: tuple[int, ...], bandwidth: tuple[tuple[float, ...], ...], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        Cluster(gpus, bandwidth)
    assert refusal.value.where == field


def random_cycle(edges: Sequence[str], rng: Random) -> tuple[PlanningProblem, Traffic]:
    """Returns one path with these edges. With "ab", "bc" and "ac", c consumes the output of b and of its input a."""
    names = sorted(set("".join(edges)))
    options = tuple(DeploymentOption(name, (name,)) for name in names)
    seconds = {name: rng.choice([1.0, 1.0, 1.5, 0.5]) for name in names}
    path = RequestPath("any", " → ".join(names), seconds)
    return PlanningProblem(options, {"any": 1.0}, (path,)), lambda path: {(edge[0], edge[1]): 1.0 for edge in edges}


@pytest.mark.parametrize(
    ("edges", "gpus", "seed"),
    [
        pytest.param(edges, gpus, seed, marks=() if seed < fast else pytest.mark.slow)
        for edges, gpus, fast, count in (
            (("ab", "bc", "ac"), (2, 2, 2), 3, 12),
            (("ab", "ac", "bd", "cd"), (2, 1, 1), 2, 6),
            (("ab", "ac", "ad", "bc", "bd", "cd"), (2, 2), 1, 2),
        )
        for seed in range(count)
    ],
)
def test_edges_that_form_cycles_carry_the_same_requests(edges: Sequence[str], gpus: tuple[int, ...], seed: int) -> None:
    rng = Random(seed)
    instance, traffic = random_cycle(edges, rng)
    network = Cluster(gpus, tuple(tuple(rng.choice([0.0, 0.25, 0.5, 1.0]) for _ in gpus) for _ in gpus))
    best = best_rate(instance, network, traffic, None)
    if best == 0:
        with pytest.raises(InfeasibleError):
            placement.max_rate(instance, network, traffic)
        return
    placed = placement.max_rate(instance, network, traffic)
    assert placed.plan.proven
    assert placed.plan.rate == pytest.approx(best, rel=2e-6)


def test_rates_for_each_edge_alone_are_not_claimed_for_a_triangle() -> None:
    """Rates for each edge alone would admit 2 requests/s."""
    names = "abc"
    path = RequestPath("any", "a → b → c", dict.fromkeys(names, 1.0))
    talker = PlanningProblem(tuple(DeploymentOption(name, (name,)) for name in names), {"any": 1.0}, (path,))
    network = Cluster((2, 2, 2), ((0.0, 1.0, 1.0), (0.5, 0.0, 0.5), (1.0, 1.0, 0.0)))
    placed = placement.max_rate(talker, network, lambda path: {("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "c"): 1.0})
    assert placed.plan.proven
    assert placed.plan.rate == pytest.approx(11 / 6)


@pytest.mark.parametrize("seed", seeds(25, 80))
def test_placements_equal_brute_force(seed: int) -> None:
    rng = Random(seed)
    instance = random_problem(seed)
    cluster, sizes, survive = random_cluster(rng), random_traffic(instance, rng), rng.choice([None, None, *Loss])
    if len(instance.options) > 3:
        cluster = Cluster(cluster.gpus[:2], tuple(row[:2] for row in cluster.bandwidth[:2]))
    best = best_rate(instance, cluster, lambda path: sizes[path.name], survive)
    if best == 0:
        with pytest.raises(InfeasibleError):
            placement.max_rate(instance, cluster, lambda path: sizes[path.name], survive=survive)
        return
    placed = placement.max_rate(instance, cluster, lambda path: sizes[path.name], survive=survive)
    assert placed.plan.proven
    assert placed.plan.survives is survive
    assert placed.plan.rate == pytest.approx(best, rel=2e-6)
    least = placement.min_gpus(instance, cluster, lambda path: sizes[path.name], best * 0.999, survive=survive)
    assert least.plan.gpus <= placed.plan.gpus


def test_a_plan_survives_the_loss_of_a_node() -> None:
    network = Cluster.uniform(3, 2, math.inf)
    placed = placement.max_rate(APART, network, one_megabyte, survive=Loss.NODE)
    assert placed.plan.rate == pytest.approx(2 / 3)
    with pytest.raises(InfeasibleError, match="the loss of a node: no placement on these nodes serves every request"):
        placement.max_rate(APART, Cluster.uniform(1, 8, 0.0), one_megabyte, survive=Loss.NODE)
    with pytest.raises(InvalidInputError, match="survive: the loss of a node needs a plan for nodes"):
        optimization.max_rate(APART, Budget(gpus=4), survive=Loss.NODE)
