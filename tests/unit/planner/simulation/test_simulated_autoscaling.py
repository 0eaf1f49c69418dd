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
from cornserve_planner.simulation.serving import ServingSimulation
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
    settings = ServingSettings(autoscaled={"L": 2.0}, startup=(30.0,))

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


def test_replicas_share_the_most_gpus(inputs: Path) -> None:
    requests = [*texts(2.0, 0, 1500), *texts(16.0, 1500, 1900)]
    settings = ServingSettings(autoscaled={"L": 2.0, "E": 4.0}, most_gpus=8, startup=(30.0,))

    found = Simulated(inputs, requests, settings=settings)

    assert found.simulation.autoscaling is not None
    changes = found.simulation.autoscaling.changes
    assert {change.executor: change.replicas for change in changes} == {"E": 1, "L": 6}  # The other one is V's.
    assert "a load of 16/s arrived" in changes[-1].reason


def test_a_load_within_the_capacity_changes_nothing(inputs: Path) -> None:
    found = simulated(inputs, ServingSettings(autoscaled={"L": 2.0}), count=3000, rate=8.0)
    plain = simulated(inputs, count=3000, rate=8.0)

    document, other = found.as_document(), plain.as_document()
    assert document.pop("scaled") == other.pop("scaled") == []
    assert document.pop("capacities") == {"L": {"requests": 2.0, "tokens": None}}
    assert other.pop("capacities") == {}
    assert document == other


def test_the_load_of_a_replica_follows_from_its_part_of_the_target(inputs: Path) -> None:
    """A text takes 0.5 s of a language model, and a speech also 0.25 s of an encoder before its first token."""

    def capacities(ttft: float, profile: str | None = None) -> dict[str, float]:
        settings = ServingSettings(autoscaled={"L": None, "E": None}, ttft=ttft)
        options = {} if profile is None else {"profile": inputs / profile, "workload": inputs / "workload.yaml"}
        found = simulated(inputs, settings, count=400, **options).capacities
        if profile is not None:  # The tokens of requests are known.
            assert found["E"].tokens == pytest.approx(400 * found["E"].requests)
            assert 100 * found["L"].requests < (found["L"].tokens or 0) < 500 * found["L"].requests
        return {name: each.requests for name, each in found.items()}

    short, long = capacities(2.0), capacities(20.0)
    assert 0.4 < short["L"] < long["L"] <= 1 / 0.5
    assert 0.8 < short["E"] < long["E"] <= 1 / 0.25
    steps = capacities(2.0, "steps.yaml")
    assert steps["L"] < capacities(4.0, "steps.yaml")["L"]


def test_replicas_with_the_load_of_their_part_meet_the_target(inputs: Path) -> None:
    settings = ServingSettings(autoscaled={"L": None, "E": None}, ttft=3.0)

    document = simulated(inputs, settings, count=3000, rate=8.0).as_document()

    assert document["scaled"][-1]["replicas"] >= 8 * 0.5
    assert document["attainment"]["ttft"] > 0.95


def test_a_missed_target_starts_replicas_of_the_executor_that_causes_it(inputs: Path) -> None:
    """The load needs no other replicas by the given rates, but each text takes 0.5 s."""
    requests = [*texts(9.5, 0, 600)]
    settings = ServingSettings(autoscaled={"L": 2.0, "E": 100.0}, ttft=0.4, startup=(10.0,))

    found = Simulated(inputs, requests, settings=settings)

    autoscaling = found.simulation.autoscaling
    assert autoscaling is not None
    first = autoscaling.changes[0]
    assert (first.executor, first.replicas) == ("L", 6)
    assert "met the ttft target in 60 s, not 95%, and L causes 100% of the missed time" in first.reason
    assert {change.executor for change in autoscaling.changes} == {"L"}


def test_the_times_of_the_autoscaling_are_those_of_a_deployment(inputs: Path) -> None:
    requests = [*texts(2.0, 0, 300), *texts(16.0, 300, 600)]
    default, fast = (
        Simulated(inputs, requests, settings=ServingSettings(autoscaled={"L": 2.0}, autoscaling_times=times)).simulation
        for times in ({}, {"window_seconds": 10.0, "dwell_seconds": 5.0})
    )

    def complete(simulation: ServingSimulation) -> float:
        assert simulation.autoscaling is not None
        return next(change.seconds for change in simulation.autoscaling.changes if change.replicas == 8)

    assert complete(fast) < complete(default) - 30


def test_a_replica_that_stops_hands_its_streams_over(inputs: Path) -> None:
    """A step takes 0.01 s, and 0.0001 s per token: two streams in one engine take little longer than in two."""
    steady = [*texts(1.0, 0, 1000)]
    long = [SimulatedRequest(f"long {number}", 945.0, "text", 100, 0, 2500) for number in range(5)]
    requests = sorted([*steady, *long], key=lambda request: request.arrival)
    settings = ServingSettings(autoscaled={"L": 100.0})

    found = Simulated(inputs, requests, profile="steps.yaml", settings=settings)

    assert found.simulation.autoscaling is not None
    (change,) = found.simulation.autoscaling.changes
    assert 945 < change.seconds < 970
    group = found.simulation.cells.cells["8-0"].groups["L"]
    stopped = [replica for replica in group.replicas.values() if replica.ended is not None]
    assert len(stopped) == 4
    assert all(not replica.invocations for replica in stopped)
    ends = {found.ends[request.id] for request in long}
    assert len(found.ends) == len(requests)
    assert min(ends) > 945 + 2500 * 0.0101
    assert max(ends) < 945 + 2500 * 0.0115


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"autoscaled": {"L": 0.0}}, "--autoscale L: must be"),
        ({"autoscaled": {"L": 1.0}, "adapts": True}, "--autoscale: excludes --adapt"),
        ({"autoscaled": {"L": None}}, "--autoscale L: needs =RATE, or --ttft, from which the rate follows"),
        ({"autoscaling_times": {"window_seconds": 5.0}}, "--autoscale: has times, but no option"),
        ({"autoscaled": {"L": 1.0}, "autoscaling_times": {"window_seconds": 5000.0}}, "--autoscale: the times are"),
    ],
)
def test_settings_that_cannot_be_simulated_are_refused(inputs: Path, settings: dict[str, object], error: str) -> None:
    plan = PlanFile.read(inputs / "plan.json")
    with pytest.raises(InvalidInputError, match=error):
        SimulationRequest(plan, "plan.json", settings=ServingSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "ttft", "error"),
    [
        ("V", 2.0, "--autoscale V: is not needed for a first token: give the load"),
        ("L", 0.1, "--autoscale L: its part of --ttft is"),
    ],
)
def test_a_load_that_does_not_follow_from_the_target_is_refused(
    inputs: Path, option: str, ttft: float, error: str
) -> None:
    settings = ServingSettings(autoscaled={option: None}, ttft=ttft)
    options = {"profile": inputs / "steps.yaml", "workload": inputs / "workload.yaml"}
    with pytest.raises(InvalidInputError, match=error):
        simulated(inputs, settings, count=50, **options)


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
