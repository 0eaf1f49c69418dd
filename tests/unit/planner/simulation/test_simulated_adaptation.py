"""The cells of a simulation follow the load by the policy of the controller."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.executor_model import executor_models
from cornserve_planner.simulation.measurements import SimulationMeasurements
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.registry import routing_policy

BURST, CALM, END = 200.0, 500.0, 2100.0


def burst(factor: float = 1.0) -> Iterator[SimulatedRequest]:
    """Yields 2.5 requests/s, from `BURST` on 7, and from `CALM` on 1, times the factor."""
    rng, now, number = random.Random(3), 0.0, 0
    while (now := now + rng.expovariate(factor * (2.5 if now < BURST else 7.0 if now < CALM else 1.0))) < END:
        yield SimulatedRequest(str(number), now, "text", 100, 0, 20)
        number += 1


class AdaptedRun:
    """A simulation of the burst, by default from one cell of 4 GPUs on. It serves 3.2 requests/s, one of 8 GPUs 8."""

    def __init__(
        self, inputs: Path, settings: ServingSettings, cells: Mapping[int, int] = {4: 1}, factor: float = 1.0
    ) -> None:
        plan = PlanFile.read(inputs / "plan.json").with_counts(cells, None)
        self.found = SimulationMeasurements()
        self.simulation = ServingSimulation(
            plan, executor_models(plan, None), routing_policy("least-loaded"), settings, self.found
        )
        self.found.events = self.simulation.events
        self.simulation.run(burst(factor))
        assert self.simulation.adaptation is not None
        self.changes = self.simulation.adaptation.changes

    @property
    def gpu_seconds(self) -> float:
        return self.simulation.cells.gpu_seconds(self.found.end)["A100-80GB"]

    def latency(self, start: float, end: float) -> float:
        """Returns the longest latency of the requests that arrived in this time."""
        columns = self.found.latencies["text"]["e2e"]
        return max(
            seconds
            for arrival, seconds in zip(columns.arrivals, columns.seconds, strict=True)
            if start <= arrival < end
        )


@pytest.fixture(scope="module")
def adapted(inputs: Path) -> AdaptedRun:
    return AdaptedRun(inputs, ServingSettings(adapts=True, startup=(30.0,)))


def test_a_burst_starts_cells_that_stop_when_it_is_over(adapted: AdaptedRun) -> None:
    grown = [change for change in adapted.changes if BURST < change.seconds < CALM]
    assert grown[0].seconds < BURST + 30
    assert "1 × 8 GPUs" in grown[-1].cells
    assert adapted.changes[-1].cells == "1 × 4 GPUs"
    assert CALM + 900 - 60 <= adapted.changes[-1].seconds < END
    assert all(later.seconds - earlier.seconds >= 60 for earlier, later in pairwise(adapted.changes))


def test_queues_grow_until_the_started_cells_serve_and_shrink_then(adapted: AdaptedRun) -> None:
    assert adapted.latency(0, BURST) < 4
    assert adapted.latency(BURST, CALM) > 8
    assert adapted.latency(CALM + 60, END) < 4


def test_no_request_is_lost_and_only_running_cells_cost(adapted: AdaptedRun) -> None:
    assert adapted.found.completed == sum(1 for _ in burst())
    assert 4 * END < adapted.gpu_seconds < 13 * END
    ended = [cell for cell in adapted.simulation.cells.cells.values() if cell.is_draining]
    assert ended
    assert all(cell.ended is not None and cell.requests == 0 for cell in ended)


def test_a_longer_start_makes_the_queues_longer(adapted: AdaptedRun, inputs: Path) -> None:
    slower = AdaptedRun(inputs, ServingSettings(adapts=True, startup=(120.0,)))

    assert slower.latency(BURST, CALM) > adapted.latency(BURST, CALM) + 20


def test_cells_have_at_most_the_given_gpus(inputs: Path) -> None:
    """The cell of 8 GPUs replaces the cell of 4, which serves until it has started: both need 12 GPUs."""
    limited = AdaptedRun(inputs, ServingSettings(adapts=True, startup=(30.0,), most_gpus=8))

    assert {change.cells for change in limited.changes} <= {"1 × 4 GPUs"}
    assert limited.gpu_seconds == pytest.approx(4 * limited.found.end)


def test_cells_without_gpus_for_both_end_before_others_start(inputs: Path) -> None:
    settings = ServingSettings(adapts=True, startup=(30.0,), most_gpus=16)

    limited = AdaptedRun(inputs, settings, {4: 1, 8: 1}, factor=2.0)

    change = limited.changes[0]
    ended = limited.simulation.cells.cells["4-0"].ended
    assert change.cells == "2 × 8 GPUs"
    assert ended is not None
    assert change.seconds <= ended < change.seconds + 10
