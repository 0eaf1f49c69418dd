"""The closed-form cost model [H §4.3]."""

from __future__ import annotations

import pytest

from benchmarks.reproduction.gpu_mix_cost import RequestLatency, cost_ratio, cost_saving, throughput
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import RequestType
from cornserve_planner.model.problem import GpuType, PlanningProblem
from cornserve_planner.model.shipped import shipped_model
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.solve.optimization import min_dollars


def test_the_papers_cluster_saves_31_4_percent() -> None:
    """[H Eq. 8] with ρ = 0.63 and γ = 3,000 / 16,000 dollars."""
    gpus = GpuCatalog.shipped()
    consumer, datacenter = gpus["RTX-4090"].purchase, gpus["A100-80GB"].purchase
    assert consumer is not None
    assert datacenter is not None

    assert cost_saving(0.63, consumer.value / datacenter.value) == pytest.approx(0.314, abs=5e-4)


def test_the_latencies_of_table_6_have_the_papers_ratio() -> None:
    latency = RequestLatency(vision=6.82, transfer=0.45, prefill=1.24, decode=9.35)

    assert latency.vision_to_language == pytest.approx(0.63, abs=0.02)
    assert latency.total == pytest.approx(17.86)


def test_the_slower_pool_limits_the_throughput() -> None:
    assert throughput(2, 0.5, 4, 2.0) == 2
    assert throughput(8, 0.5, 2, 2.0) == 1


def test_balanced_pools_have_the_cost_of_the_closed_form() -> None:
    vision, language, price, cheap = 0.6, 1.0, 16_000.0, 3000.0
    language_models, encoders = 10, 6  # Balanced pools have GPUs in proportion to time.

    assert throughput(encoders, vision, language_models, language) == 10
    homogeneous = (vision + language) * 10 * price
    assert (encoders * cheap + language_models * price) / homogeneous == pytest.approx(
        cost_ratio(vision / language, cheap / price)
    )


def test_savings_grow_with_encoding_and_with_the_price_gap() -> None:
    assert cost_saving(0.2, 0.2) < cost_saving(0.9, 0.2) < cost_saving(0.9, 0.1)
    assert cost_saving(0.5, 1) == 0
    assert cost_saving(0.5, 2) < 0


def test_the_solver_finds_the_saving_of_the_closed_form() -> None:
    """Uses the paper's prices, equally fast encoders, and a rate at which rounding to replicas does not matter."""
    vision, language = 0.63, 1.0
    model = shipped_model("llava-1.5-7b")
    seconds = {"image_encoder": vision, "llm": language}
    kind = RequestType("image", frozenset(seconds))
    found = PlanningProblem.from_graph(
        model.graph(),
        {kind: 1.0},
        lambda _, step: sum(seconds[component] for component in step.role),
        [GpuType("RTX-4090", price=3000), GpuType("A100-80GB", price=16_000)],
    )

    both = min_dollars(found, 1000).value
    only_a100 = min_dollars(found.restricted_to(["encoder-A100", "llm", "monolith"]), 1000).value

    assert 1 - both / only_a100 == pytest.approx(cost_saving(vision / language, 3000 / 16_000), abs=1e-3)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: cost_ratio(-1, 0.5), "vision_to_language: must be a finite number of at least 0, not -1"),
        (lambda: cost_ratio(1, 0), "price_ratio: must be a finite number greater than 0, not 0"),
        (lambda: RequestLatency(1, float("inf"), 1, 1), "transfer: must be a finite number of at least 0, not inf"),
        (
            lambda: RequestLatency(1, 0, 0, 0).vision_to_language,
            "language: must be a finite number greater than 0, not 0",
        ),
        (lambda: throughput(1, 0, 1, 1), "vision_seconds: must be a finite number greater than 0, not 0"),
    ],
)
def test_invalid_costs_are_rejected(make: object, error: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError, match=error):
        make()
