"""Executors whose replicas follow their load, by the policy of the controller."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_planner.simulation.simulation_result import SimulationRequest
from cornserve_policies import registry
from tests.unit.planner.simulation.test_serving import Simulated, simulated


def texts(rate: float, start: float, end: float) -> Iterator[SimulatedRequest]:
    """Yields requests for the language model, of which a replica serves 2 per second."""
    for number in range(int(rate * (end - start))):
        yield SimulatedRequest(f"{start}-{number}", start + number / rate, "text", 100, 0, 20)


def test_replicas_follow_the_load_of_their_executor(inputs: Path) -> None:
    requests = [*texts(2.0, 0, 1500), *texts(16.0, 1500, 1900)]
    settings = ServingSettings(autoscaled={"L": 2.0}, startup=30.0)

    found = Simulated(inputs, requests, settings=settings)

    assert found.simulation.autoscaling is not None
    changes = found.simulation.autoscaling.changes
    assert changes[0].replicas == 1  # The plan has 5.
    assert 900 <= changes[0].seconds < 1000
    assert changes[-1].replicas == 8
    assert "a load of 16/s arrived, and a replica takes 2/s" in changes[-1].reason
    assert all(change.seconds > 1500 for change in changes[1:])
    assert len(found.ends) == len(requests)
    late = [found.ends[request.id] - request.arrival for request in requests if request.arrival > 1890]
    assert max(late) > 0.5  # A queue formed until the replicas served.
    group = found.simulation.cells.cells["8-0"].groups["L"]
    assert len(group.serving) == 8
    others = found.simulation.cells.cells["8-0"].groups["E"]
    assert len(others.serving) == others.running == len(others.replicas)


def test_the_gpus_of_stopped_replicas_are_free(inputs: Path) -> None:
    requests = [*texts(1.0, 0, 2000)]

    fixed = Simulated(inputs, requests).simulation.cells.gpu_seconds(2000.0)
    scaled = Simulated(inputs, requests, settings=ServingSettings(autoscaled={"L": 2.0}))

    assert scaled.simulation.autoscaling is not None
    (change,) = scaled.simulation.autoscaling.changes
    (name,) = fixed
    saved = 4 * (2000.0 - change.seconds)
    assert scaled.simulation.cells.gpu_seconds(2000.0)[name] == pytest.approx(fixed[name] - saved)


def test_a_load_within_the_capacity_changes_nothing(inputs: Path) -> None:
    found = simulated(inputs, ServingSettings(autoscaled={"L": 2.0}), count=3000, rate=8.0)
    plain = simulated(inputs, count=3000, rate=8.0)

    document, other = found.as_document(), plain.as_document()
    assert document.pop("scaled") == other.pop("scaled") == []
    assert document == other


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"autoscaled": {"L": 0.0}}, "--autoscale L: must be"),
        ({"autoscaled": {"L": 1.0}, "adapts": True}, "--autoscale: excludes --adapt"),
    ],
)
def test_settings_that_cannot_be_simulated_are_refused(inputs: Path, settings: dict[str, object], error: str) -> None:
    plan = PlanFile.read(inputs / "plan.json")
    with pytest.raises(InvalidInputError, match=error):
        SimulationRequest(plan, "plan.json", settings=ServingSettings(**settings))  # type: ignore[arg-type]


def test_an_unknown_option_is_refused_in_one_line(inputs: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", str(inputs / "plan.json"), "--autoscale", "X=2"])
    assert result.exit_code == 1
    assert "--autoscale: 'X' is not in the plan: use one of E, L, V" in result.stderr


def test_a_third_partys_routing_policy_is_simulated_unchanged(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy class is the one that `test_every_decision_is_repeated_equally` runs in a gateway."""
    value = "tests.unit.gateway.most_loaded_routing:MostLoadedRouting"
    entry = EntryPoint("most-loaded", value, registry.ROUTING_ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda **selected: EntryPoints([entry]).select(**selected))

    found = simulated(inputs, count=400, routing="most-loaded")

    busy = [replica.busy_seconds for replica in found.simulation.cells.cells["8-0"].groups["L"].replicas.values()]
    assert busy[-1] > 0.9 * sum(busy)  # All wait for the replica with the largest id.
