"""`cornserve plan adapt` and `cornserve plan check`, from a plan file alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cornserve.cli.commands import app
from cornserve_planner.adaptation.drift import check_drift
from cornserve_planner.adaptation.saved_plan import adapt_plan
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.inputs.service_targets import ServiceTargets
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.workload.document import Workload, WorkloadDocument

IMAGES, VIDEOS = ["image_encoder", "prefill", "decode"], ["image_encoder", "video_encoder", "prefill", "decode"]


@pytest.fixture(scope="module")
def file() -> PlanFile:
    targets = ServiceTargets(utilization=1.0)
    return make_plan(PlanRequest("internvl3-38b", rate=10, largest_cell=16, targets=targets)).file


@pytest.fixture
def saved(file: PlanFile, tmp_path: Path) -> str:
    file.write(tmp_path / "plan.json")
    return str(tmp_path / "plan.json")


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["plan", *arguments])


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def workload(tmp_path: Path, **types: tuple[list[str], float]) -> str:
    entries = {name: {"components": components, "share": share} for name, (components, share) in types.items()}
    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"format": "cornserve-planner/workload", "version": 1, "types": entries}))
    return str(path)


def test_a_plan_for_the_loss_of_a_replica_is_adapted_for_the_loss_of_one(tmp_path: Path) -> None:
    file = make_plan(PlanRequest("internvl3-38b", rate=5, survive=True)).file
    after_loss = file.cells[0].rate_after_loss
    assert after_loss is not None
    loss = file.rate - after_loss
    for rate, count in ((4, 1), (2 * file.rate - 1.1 * loss, 2), (2 * file.rate - 0.9 * loss, 3)):
        assert adapt_plan(file, rate).file.cells[0].count == count

    with pytest.raises(InvalidInputError, match="target"):
        file.with_counts({cell.gpus: 1 for cell in file.cells}, after_loss * 1.001)


def test_the_sensitivity_of_a_plan_for_losses_states_that_it_assumes_none() -> None:
    assert "serve more while no replica is lost." in run("internvl3-38b", "--rate", "5", "--survive").stdout


def test_a_budget_too_small_for_losses_is_refused_in_plain_words() -> None:
    assert "a plan needs more than 2 GPUs" in run("internvl3-38b", "--gpus", "2", "--survive").stderr


def test_a_plan_file_is_adapted_to_a_new_rate(saved: str, tmp_path: Path) -> None:
    result = run("adapt", saved, "--rate", "13", "--free", "16", "--save", str(tmp_path / "next.json"))
    read = PlanFile.read(tmp_path / "next.json")

    assert "Running: 44 GPUs, 10.17 requests/s (target: 10): 2 cells of 16 GPUs" in result.stdout
    assert "Adapted: 56 GPUs, 13.24 requests/s (target: 13): 3 cells of 16 GPUs + 1 cell of 8 GPUs" in result.stdout
    assert "At least 10 requests/s are served throughout." in result.stdout
    assert (read.target, read.counts, read.total_gpus) == (13.0, {8: 1, 16: 3}, {"A100-80GB": 56})


def test_without_free_gpus_the_report_states_the_shortfall(saved: str) -> None:
    found = document("adapt", saved, "--rate", "13")
    (stop_first, ready) = found["steps"]

    assert found["free"] == {"A100-80GB": 12}
    assert (stop_first["stops"], stop_first["starts"], ready["rate"]) == ({"4": 1}, {"16": 1}, found["rate"])
    assert stop_first["rate"] < found["required"] == 10
    assert found["lost"] == pytest.approx((10 - stop_first["rate"]) * ready["seconds"])
    assert "requests are lost or wait" in run("adapt", saved, "--rate", "13").stdout


def test_a_start_up_time_that_is_unknown_is_assumed_and_reported(file: PlanFile) -> None:
    options = {name: option.model_copy(update={"startup": None}) for name, option in file.options.items()}
    unknown = file.model_copy(update={"options": options})

    adapted = adapt_plan(unknown, 13.0, {"A100-80GB": 16})

    assert set(adapted.assumed.values()) == {120.0}
    assert adapted.order.seconds == 120.0


def test_an_adapted_plan_file_adapts_back(file: PlanFile) -> None:
    assert adapt_plan(adapt_plan(file, 13.0).file, 10.0).file == file


def test_under_the_planned_workload_a_plan_serves_its_rate() -> None:
    file = make_plan(PlanRequest("internvl3-38b", gpus=6)).file
    drift = check_drift(file, load_inputs("internvl3-38b").workload)

    assert drift.rate == pytest.approx(file.rate)
    assert drift.best_rate == pytest.approx(file.rate)
    for entry in drift.cells:
        assert entry.limiting
        assert max(entry.utilization.values()) == pytest.approx(0.8)


def test_more_videos_reduce_the_rate(saved: str, file: PlanFile, tmp_path: Path) -> None:
    path = workload(tmp_path, image=(IMAGES, 0.2), clip=(VIDEOS, 0.8))
    found = document("check", saved, "--workload", path)

    assert found["shares"] == {"image": 0.2, "image+video": 0.8}
    assert found["rate"] < found["planned_rate"] == pytest.approx(file.rate)
    assert found["rate"] <= found["best_rate"] < file.rate
    assert found["of_target"] == pytest.approx(found["rate"] / 10)
    limiting = [name for cell in found["cells"] for name in cell["limiting"]]
    assert limiting
    stdout = run("check", saved, "--workload", path).stdout
    assert "limits the plan" in stdout
    assert f"{found['of_target']:.1%} of the target of 10" in stdout


def test_the_rate_under_drift_is_where_the_first_option_is_full(file: PlanFile) -> None:
    """Adds the work of all requests, path by path, and compares it with the time of the replicas."""
    kinds = {kind.name: kind for kind in load_inputs("internvl3-38b").workload.shares}
    shares = {"image": 0.1, "image+video": 0.6, "prefill+decode": 0.3}
    drift = check_drift(file, Workload({kinds[name]: share for name, share in shares.items()}))

    fullest = 0.0
    for entry in drift.cells:
        cell = entry.cell
        busy = dict.fromkeys(cell.replicas, 0.0)
        for name, share in shares.items():
            able = [other for other in file.cells if other.count and other.probabilities[name]]
            if cell in able:
                part = cell.count * cell.rate / sum(other.count * other.rate for other in able)
                for path, probability in zip(file.types[name].paths, cell.probabilities[name], strict=True):
                    for step in path.steps:
                        if probability:
                            busy[step.option] += drift.rate * share * part * probability * step.seconds
        for name, seconds in busy.items():
            used = seconds / (cell.count * cell.replicas[name])
            assert entry.utilization[name] == pytest.approx(used)
            fullest = max(fullest, used)
    assert fullest == pytest.approx(1.0)


def test_types_that_the_plan_does_not_have_are_refused_without_a_default_type(file: PlanFile, tmp_path: Path) -> None:
    saved = with_default_type(file, None, tmp_path)
    path = workload(tmp_path, image=(IMAGES, 0.9), encoded=(["image_encoder"], 0.1))
    found = document("check", saved, "--workload", path)

    assert (found["shares"], found["refused"]) == ({"image": 1.0}, {"encoded": 0.1})
    assert "Refused: encoded, 0.1 of the requests" in run("check", saved, "--workload", path).stdout
    result = run("check", saved, "--workload", workload(tmp_path, encoded=(["image_encoder"], 1.0)))
    assert result.stderr == "error: infeasible: types: the running cells serve none of encoded\n"


def with_default_type(file: PlanFile, name: str | None, directory: Path) -> str:
    path = directory / "plan.json"
    path.write_text(json.dumps({**json.loads(file.dump()), "default_type": name}))
    return str(path)


def test_types_that_a_plan_does_not_know_are_served_as_its_default_type(file: PlanFile, tmp_path: Path) -> None:
    saved = with_default_type(file, "image", tmp_path)
    found = document("check", saved, "--workload", workload(tmp_path, encoded=(["image_encoder"], 1.0)))

    assert found["shares"] == {"image": 1.0}
    assert found["refused"] == {}


def test_modalities_need_every_component_of_the_types(file: PlanFile) -> None:
    fields = json.loads(file.dump())
    fields["models"]["internvl3-38b"]["modalities"]["inputs"]["image"] = []
    with pytest.raises(InvalidInputError, match=r"modalities: need none of image_encoder, which type .* has: add them"):
        PlanFile.parse(json.dumps(fields), "plan.json")


def test_a_file_of_requests_is_checked(saved: str, tmp_path: Path) -> None:
    requests = tmp_path / "day.jsonl"
    lines = ['{"format": "cornserve-planner/requests", "version": 1}']
    lines += [f'{{"arrival": {second}, "images": [{{"tokens": 600}}], "text_tokens": 9}}' for second in range(5)]
    requests.write_text("\n".join(lines) + "\n")

    assert document("check", saved, "--workload", str(requests))["shares"] == {"image": 1.0}


def test_the_workload_of_the_document_class_names_types_by_components(file: PlanFile) -> None:
    text = json.dumps(
        {
            "format": "cornserve-planner/workload",
            "version": 1,
            "types": {
                "a": {"components": IMAGES, "share": 0.25},
                "b": {"components": list(reversed(IMAGES)), "share": 0.75},
            },
        }
    )
    drift = check_drift(file, WorkloadDocument.parse(text, "w.json").to_workload())

    assert drift.shares == {"image": 1.0}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["adapt", "FILE", "--rate", "0"], "error: --rate: must be a finite number greater than 0"),
        (["adapt", "FILE", "--rate", "13", "--free", "x"], "error: --free must be N, or TYPE=N for plans with"),
        (["adapt", "FILE", "--rate", "13", "--free", "L4=1"], "error: --free: 'L4' is not a GPU type of the plan: "),
        (["adapt", "FILE", "--rate", "13", "--free", "3"], "error: infeasible: 3 free A100-80GB GPUs: the adapted "),
        (["check", "nowhere.json", "--workload", "w.yaml"], "error: nowhere.json: cannot be read: No such file"),
    ],
)
def test_an_error_is_printed_in_one_line(arguments: list[str], error: str, saved: str) -> None:
    result = run(*(saved if argument == "FILE" else argument for argument in arguments))

    assert result.exit_code == 1
    assert result.stderr.startswith(error)
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_a_missing_rate_or_workload_is_named(saved: str) -> None:
    assert "Missing option '--rate'" in run("adapt", saved).stderr
    assert "Missing option '--workload'" in run("check", saved).stderr


def test_the_subcommand_model_can_be_left_out() -> None:
    short, long = (document(*command, "--gpus", "4") for command in (["internvl3-38b"], ["model", "internvl3-38b"]))
    assert short["rate"] == long["rate"] > 0
    assert "from" in run("--help").stdout
