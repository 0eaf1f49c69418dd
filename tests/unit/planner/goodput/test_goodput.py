"""Plans that meet latency targets, by replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.harness.planner.role_mixes import ImageWorkload, write_inputs
from cornserve_planner.__main__ import app
from cornserve_planner.errors import InfeasibleError, InvalidInputError
from cornserve_planner.goodput import replay
from cornserve_planner.inputs.request_targets import GoodputTargets
from cornserve_planner.inputs.service_targets import ServiceTargets
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.planning.result import PlanResult

CHAT = ImageWorkload("chat", text=300, images=1, output=250)


@pytest.fixture(autouse=True)
def _few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_REQUESTS", 500)


def planned(folder: Path, gpus: int | None = 2, rate: float | None = None, **targets: dict[str, float]) -> PlanResult:
    model, workload, profile = write_inputs(folder, CHAT)
    latency = ServiceTargets(latency=GoodputTargets(targets, 90.0))
    return make_plan(PlanRequest(str(model), gpus, rate=rate, workload=workload, profile=profile, targets=latency))


def test_the_plan_has_the_highest_goodput_of_all_candidates(tmp_path: Path) -> None:
    found = planned(tmp_path, ttft={"": 1.0}, tbt={"": 0.03})
    document = found.as_document()
    best, *others = document["candidates"]

    assert {each["kind"] for each in document["candidates"]} >= {"monolith", "EP+D", "ED+P"}
    assert best["goodput"]["low"] <= found.file.rate == pytest.approx(best["goodput"]["value"])
    assert found.file.cells[0].replicas == best["replicas"]
    assert all((each["goodput"] or {"value": each["most"]})["value"] <= best["goodput"]["high"] for each in others)


def test_shorter_targets_have_smaller_steps_and_less_goodput(tmp_path: Path) -> None:
    short = planned(tmp_path, ttft={"": 0.3}, tbt={"": 0.015})
    long = planned(tmp_path, ttft={"": 3.0}, tbt={"": 0.06})

    assert short.file.rate < long.file.rate
    few, many = short.file.step_limits, long.file.step_limits
    assert few["D"]["max_num_seqs"] < many["D"]["max_num_seqs"]
    assert few["P"]["max_num_batched_tokens"] < many["P"]["max_num_batched_tokens"]


def test_limits_that_the_settings_of_an_executor_contain_remain(tmp_path: Path) -> None:
    model, workload, profile = write_inputs(tmp_path, CHAT)
    executor = "executor: {task: DecodeTask, settings: {options: {max_num_seqs: 3}}}"
    model.write_text(model.read_text().replace("  D: {", f"  D: {{{executor}, "))
    targets = ServiceTargets(latency=GoodputTargets({"ttft": {"": 3.0}, "tbt": {"": 0.06}}, 90.0))

    found = make_plan(PlanRequest(str(model), 2, workload=workload, profile=profile, targets=targets))

    limits = found.file.step_limits
    assert limits["D"]["max_num_seqs"] == 3
    assert limits["EPD"]["max_num_seqs"] > 3


def test_a_rate_is_served_within_the_targets_on_the_fewest_gpus(tmp_path: Path) -> None:
    on_two = planned(tmp_path, ttft={"": 1.0})
    needed = planned(tmp_path, None, rate=on_two.file.rate * 1.3, ttft={"": 1.0})

    assert sum(needed.file.total_gpus.values()) == 3
    assert needed.file.rate == pytest.approx(on_two.file.rate * 1.3)


def test_a_plan_for_a_rate_is_printed_without_a_budget(tmp_path: Path) -> None:
    model, workload, profile = write_inputs(tmp_path, CHAT)
    files = [str(model), "--workload", str(workload), "--profile", str(profile)]

    result = CliRunner().invoke(app, ["plan", *files, "--rate", "0.5", "--ttft", "5"])

    assert result.exit_code == 0, result.output
    assert "Limited by the rate of 0.5 requests/s: " in result.stdout
    assert "Fixed strategies" not in result.stdout


def test_targets_of_a_type_replace_those_of_all(tmp_path: Path) -> None:
    general = planned(tmp_path, ttft={"": 0.15})
    of_type = planned(tmp_path, ttft={"": 0.15, "image": 3.0})

    assert of_type.file.rate > general.file.rate


def test_targets_that_no_candidate_meets_are_infeasible(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError, match="no candidate meets them"):
        planned(tmp_path, ttft={"": 0.001})
    with pytest.raises(InvalidInputError, match="'text' is not a request type"):
        planned(tmp_path, ttft={"text": 1.0})
