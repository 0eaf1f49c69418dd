"""Replicas of a simulation fail. Their invocations run again as in gateways, and other replicas start."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve_planner.simulation.serving import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from tests.unit.planner.simulation.test_serving import Simulated, simulated, speech


def failing(*failures: tuple[str, float], startup: float = 10.0) -> ServingSettings:
    return ServingSettings(failures=failures, startup=startup)


def test_an_invocation_runs_again_after_the_producers_of_the_inputs_that_it_had_taken(inputs: Path) -> None:
    found = Simulated(inputs, [speech()], settings=failing(("L", 0.5)))

    assert found.ends == {"a": pytest.approx(0.5 + 0.25 + 0.5 + 0.125)}
    assert found.invocations() == 0


def test_an_invocation_that_has_not_begun_only_moves(inputs: Path) -> None:
    found = Simulated(inputs, [speech()], settings=failing(("L", 0.1)))

    assert found.ends == {"a": pytest.approx(0.25 + 0.5 + 0.125)}


def test_a_stream_of_tokens_continues_on_another_replica(inputs: Path) -> None:
    """The tokens that the client has read are a part of the prompt. A step takes 0.01 s, and 0.0001 s per token."""
    first, step = 0.01 + 0.0001 * 200, 0.01 + 0.0001
    failure = first + 10.5 * step

    found = Simulated(
        inputs,
        [SimulatedRequest("a", 0.0, "text", 200, 0, 30)],
        profile="steps.yaml",
        settings=failing(("L", failure)),
    )

    assert found.firsts == {"a": pytest.approx(first)}
    assert found.ends == {"a": pytest.approx(failure + 0.01 + 0.0001 * 211 + 18 * step)}


def test_requests_wait_for_the_only_replica_of_an_option_until_it_has_started(inputs: Path) -> None:
    found = Simulated(inputs, [speech(str(number), number * 0.4) for number in range(20)], settings=failing(("V", 2.0)))

    assert len(found.ends) == 20
    assert not [end for end in found.ends.values() if 2.0 < end < 12.0]
    assert max(found.ends.values()) == pytest.approx(12.0, abs=4.0)


def test_a_request_fails_with_its_second_executor(inputs: Path) -> None:
    found = Simulated(inputs, [speech("a"), speech("b", 0.3)], settings=failing(("E", 0.1), ("E", 0.2)))

    assert found.failed == ["a"]
    assert [*found.ends] == ["b"]
    assert found.invocations() == 0


def test_a_restarted_replica_serves_again(inputs: Path) -> None:
    found = Simulated(
        inputs, [speech(str(number), number * 0.2) for number in range(100)], settings=failing(("E", 1.0), startup=2.0)
    )

    replicas = found.simulation.cells.cells["8-0"].groups["E"].replicas.values()
    failed = next(replica for replica in replicas if len(replica.engines) == 2)
    assert all(engine.busy_seconds > 0 for engine in failed.engines)


@pytest.mark.parametrize("profile", [None, "steps.yaml"])
def test_no_request_is_lost_under_load(inputs: Path, profile: str | None) -> None:
    settings = ServingSettings(
        failures=tuple((option, 5.0 + 3 * number) for number, option in enumerate("ELVELVELVELVELVELVELV")),
        startup=1.0,
        streamed=frozenset({"vocoder"}),
    )
    profiled = None if profile is None else inputs / profile

    found = simulated(inputs, settings, workload=inputs / "workload.yaml", count=600, profile=profiled)

    assert (found.measurements.completed, found.measurements.failed) == (600, 0)
    cells = found.simulation.cells.cells.values()
    groups = [group for cell in cells for group in cell.groups.values()]
    replicas = [replica for group in groups for replica in group.replicas.values()]
    assert sum(len(replica.engines) - 1 for replica in replicas) == 21
    assert all(replica.load.invocations(0.0) == 0 and not replica.invocations for replica in replicas)
