"""Replicas of a simulation fail. Their invocations run again as in gateways, and other replicas start."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from tests.unit.planner.simulation.conftest import profile_text
from tests.unit.planner.simulation.test_serving import CURVE, Simulated, simulated, speech, write_requests


def failing(*failures: tuple[str, float], startup: float = 10.0) -> ServingSettings:
    return ServingSettings(failures=failures, startup=(startup,))


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


def test_requests_that_wait_for_a_replica_run_as_soon_as_it_serves(inputs: Path) -> None:
    """The start takes years: a simulation of attempts in the meantime would not end."""
    found = Simulated(inputs, [speech()], settings=failing(("V", 0.5), startup=1e9))

    assert found.ends == {"a": pytest.approx(0.5 + 1e9 + 0.125, rel=1e-12)}


def test_each_start_takes_one_of_the_measured_times(inputs: Path) -> None:
    settings = ServingSettings(failures=(("V", 2.0), ("V", 100.0), ("V", 200.0)), startup=(10.0, 20.0), seed=1)
    requests = [speech(str(number), number * 0.5) for number in range(600)]

    ends = sorted(Simulated(inputs, requests, settings=settings).ends.values())
    gaps = [round(after - before) for before, after in pairwise(ends) if after - before > 5]

    assert len(gaps) == 3
    assert {*gaps} == {10, 20}
    assert sorted(Simulated(inputs, requests, settings=settings).ends.values()) == ends


def test_starts_take_the_measured_times_of_the_profile(inputs: Path, tmp_path: Path) -> None:
    profile = tmp_path / "starts.yaml"
    profile.write_text(profile_text().replace("option: V,", "option: V, startup_times: [40.0],"))
    settings = ServingSettings(failures=(("V", 2.0),))

    known, unknown = (
        simulated(inputs, settings, count=200, rate=2.0, **options).as_document()["latency"]["speech"]["e2e"]["p99"]
        for options in ({"profile": profile}, {})
    )

    assert unknown["value"] < 10
    assert known["value"] > 30


def test_a_request_fails_with_its_second_executor(inputs: Path) -> None:
    found = Simulated(inputs, [speech("a"), speech("b", 0.3)], settings=failing(("E", 0.1), ("E", 0.2)))

    assert found.failed == ["a"]
    assert [*found.ends] == ["b"]
    assert found.invocations() == 0


def test_requests_that_all_fail_have_a_time_a_cost_and_a_utilization(inputs: Path, tmp_path: Path) -> None:
    request = {"arrival": 0, "images": [{"tokens": 400}], "output_modalities": ["audio"]}
    workload = write_requests(tmp_path / "requests.jsonl", request)
    settings = ServingSettings(failures=(("E", 0.1), ("E", 0.2)), startup=(10.0,), ttft=1.0)

    document = simulated(inputs, settings, workload=workload).as_document()

    assert (document["completed"], document["failed"], document["seconds"]) == (0, 1, 0.2)
    assert document["gpu_hours"] == {"A100-80GB": pytest.approx(8 * 0.2 / 3600)}
    assert document["executors"]["E"]["utilization"] == pytest.approx(1 / document["executors"]["E"]["replicas"])
    assert document["attainment"] == {"ttft": 0.0}


def test_a_request_that_fails_after_its_first_output_has_met_the_target_of_it(inputs: Path, tmp_path: Path) -> None:
    request = {"arrival": 0, "text_tokens": 100, "output_tokens": 900}
    workload = write_requests(tmp_path / "requests.jsonl", request)
    settings = ServingSettings(failures=(("L", 1.0), *[("L", 2.0)] * 4), startup=(0.0,), ttft=0.5, e2e=60.0)

    result = simulated(inputs, settings, workload=workload, profile=inputs / "steps.yaml")

    assert result.measurements.failed == 1
    assert result.as_document()["attainment"] == {"ttft": 1.0, "e2e": 0.0}


@pytest.mark.parametrize(("profile", "option"), [("profile.yaml", "E"), ("curves.yaml", "E"), ("steps.yaml", "L")])
def test_an_engine_works_until_its_failure(inputs: Path, tmp_path: Path, profile: str, option: str) -> None:
    for name in ("plan.json", "profile.yaml", "steps.yaml"):
        (tmp_path / name).write_text((inputs / name).read_text())
    (tmp_path / "curves.yaml").write_text(profile_text(latency=CURVE))
    failure = 0.2 if option == "E" else 0.4

    found = Simulated(tmp_path, [speech()], profile=profile, settings=failing((option, failure)))

    (replica,) = (
        replica
        for replica in found.simulation.cells.cells["8-0"].groups[option].replicas.values()
        if len(replica.engines) == 2
    )
    assert replica.engines[0].busy_seconds == pytest.approx(failure if option == "E" else failure - 0.25)


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
        startup=(1.0,),
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
