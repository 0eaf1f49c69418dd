"""The `cornserve plan` command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from cornserve.cli.commands import app
from cornserve_planner.__main__ import app as alone
from cornserve_planner.command import model_names
from cornserve_planner.deployment_plan import DeploymentPlan
from cornserve_planner.models import shipped_models

MODEL = """
format: cornserve-planner/model
version: 1
name: tiny
components: {encoder: {}, llm: {after: [encoder]}}
options:
  E: {components: [encoder], gpu: A100-80GB}
  L: {components: [llm], gpu: A100-80GB}
  EL: {components: [encoder, llm], gpu: A100-80GB}
paths: [[EL], [E, L], [E, EL]]
"""
WORKLOAD = """
format: cornserve-planner/workload
version: 1
types:
  image: {components: [encoder, llm], share: 0.5}
  text: {components: [llm], share: 0.5}
"""
RATES = {"E": 2.0, "L": 1.0, "EL": 0.5}
RATE = "rate: {{value: {}, unit: requests/s, tag: measured, source: a test}}"
OPTION = "- {{option: {}, gpu: A100-80GB, throughput: [{{" + RATE + "}}]}}"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The arguments for a user's model: E takes 0.5 s for an image, L 1 s for every request, EL 4/3 of their sum."""
    options = "\n".join(OPTION.format(name, rate) for name, rate in RATES.items())
    profile = f"format: cornserve-planner/profile\nversion: 1\nmodel: tiny\noptions:\n{options}\n"
    for name, text in (("model", MODEL), ("workload", WORKLOAD), ("profile", profile)):
        (tmp_path / f"{name}.yaml").write_text(text)
    at = [str(tmp_path / f"{name}.yaml") for name in ("model", "workload", "profile")]
    return [at[0], "--workload", at[1], "--profile", at[2]]


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["plan", *arguments])


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_shipped_model_is_planned_without_any_file() -> None:
    result = run("qwen2.5-omni-7b", "--gpus", "8", "--factor", "monolith=3")

    assert result.exit_code == 0
    for part in (
        "8 request types",
        "5 published, 2 predicted",
        "8 GPUs serve 3.606 requests/s: 1 cell of 8 GPUs",
        "encoders+llm            5",
        "Limited by the budget of 8 GPUs: encoders+llm is fully used",
        "Proven optimal by highs",
        "With fractional replicas",
        "encoders+llm / audio_generator (5, 3)",
        "100.0%",
    ):
        assert part in result.stdout


def test_explain_prints_sources_factors_and_all_strategies() -> None:
    result = run("qwen2.5-omni-7b", "--gpus", "8", "--factor", "monolith=3", "--explain")

    assert "monolith 3" in result.stdout
    assert "published  [C Table 1]" in result.stdout
    assert "gain of one more" in result.stdout
    assert "monolith (8)" in result.stdout


def test_user_files_are_planned(files: list[str]) -> None:
    found = document(*files, "--gpus", "5", "--whole")
    (entry,) = found["instances"]

    assert found["model"] == "tiny"
    assert found["rate"] == pytest.approx(4.0)
    assert (entry["count"], entry["plan"]["replicas"]) == (1, {"E": 1, "L": 4})
    assert sum(
        path_rate["rate"] for path_rate in entry["plan"]["rates"] if path_rate["type"] == "text"
    ) == pytest.approx(2.0)
    assert found["explanations"][0]["gain"] == pytest.approx(1.0)


def test_json_contains_cells_and_their_mixture(files: list[str]) -> None:
    found = document(*files, "--gpus", "5")

    assert [cell["gpus"] for cell in found["cells"]] == [1, 2, 4]
    assert found["cells"][0]["rate"] == pytest.approx(0.6)
    assert [(entry["count"], entry["plan"]["gpus"]) for entry in found["instances"]] == [(1, 4), (1, 1)]
    assert found["rate"] == pytest.approx(sum(entry["plan"]["rate"] for entry in found["instances"]))


def test_a_rate_is_served_with_the_fewest_gpus_or_dollars(files: list[str]) -> None:
    by_gpus = document(*files, "--rate", "2", "--whole")
    by_dollars = document(*files, "--rate", "2", "--objective", "dollars")
    of_cells = document(*files, "--rate", "2")

    assert by_gpus["gpus"] == 3
    assert by_dollars["dollars"] == pytest.approx(3 * 2.45)
    assert by_dollars["cells"] == []
    assert of_cells["rate"] >= 2
    assert of_cells["direct"]["gpus"] == 3
    assert of_cells["target"] == 2


def test_a_budget_can_have_several_gpu_types() -> None:
    found = document("llava-1.5-7b", "--gpus-of", "RTX-4090=1", "--gpus-of", "A100-80GB=2")
    (entry,) = found["instances"]

    assert entry["plan"]["replicas"].keys() >= {"encoder-4090"}
    assert found["gpus"] == 3


def test_a_file_of_requests_sets_the_shares_and_the_rate(tmp_path: Path) -> None:
    requests = tmp_path / "day.jsonl"
    lines = ['{"format": "cornserve-planner/requests", "version": 1}']
    lines += [f'{{"arrival": {second / 2}, "images": [{{"tokens": 600}}], "text_tokens": 9}}' for second in range(5)]
    requests.write_text("\n".join(lines) + "\n")
    found = document("qwen2.5-omni-7b", "--workload", str(requests))

    assert found["shares"] == {"llm+image_encoder": 1.0}
    assert found["target"] == pytest.approx(2.0)


def test_both_solvers_find_the_same_rate(files: list[str]) -> None:
    rates = [document(*files, "--gpus", "7", "--solver", solver)["rate"] for solver in ("highs", "cbc")]

    assert rates[0] == pytest.approx(rates[1])


def test_a_saved_plan_can_be_read(files: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    found = document(*files, "--gpus", "6", "--save", str(saved))
    proposal = DeploymentPlan.read(saved)

    assert proposal.rate == pytest.approx(found["rate"])
    assert sum(entry.count * entry.plan.rate for entry in proposal.instances) == pytest.approx(proposal.rate)


@pytest.mark.parametrize("name", ["plan.svg", "plan.png"])
def test_a_plan_is_drawn(files: list[str], tmp_path: Path, name: str) -> None:
    drawn = tmp_path / name
    assert run(*files, "--gpus", "6", "--plot", str(drawn)).exit_code == 0

    if drawn.suffix == ".svg":
        text = drawn.read_text()
        assert ">requests<" in text
        assert "Throughput by number of GPUs" in text
    else:
        assert drawn.read_bytes().startswith(b"\x89PNG")


def test_the_same_plan_gives_the_same_diagram(files: list[str], tmp_path: Path) -> None:
    drawn = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for file in drawn:
        run(*files, "--gpus", "2", "--plot", str(file))

    assert drawn[0].read_bytes() == drawn[1].read_bytes()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["gpt-5", "--gpus", "8"], "error: model: unknown model 'gpt-5': use one of internvl3-38b, "),
        (["nowhere.yaml", "--gpus", "8"], "error: nowhere.yaml: cannot be read: No such file or directory"),
        (["qwen2.5-omni-7b"], "error: --gpus, --rate: give exactly one"),
        (["qwen2.5-omni-7b", "--gpus", "8", "--rate", "2"], "error: --gpus, --rate: give exactly one"),
        (["qwen2.5-omni-7b", "--gpus", "8", "--objective", "dollars"], "error: --objective: dollars needs a --rate"),
        (["qwen2.5-omni-7b", "--gpus", "8", "--factor", "monolith"], "error: --factor must be OPTION=FACTOR"),
        (["llava-1.5-7b", "--gpus-of", "L4"], "error: --gpus-of must be TYPE=N"),
        *(
            (["llava-1.5-7b", "--gpus-of", f"RTX-4090={count}"], "error: --gpus-of must be TYPE=N, a type and a whole ")
            for count in ("1.7", "nan", "inf", "-1", "")
        ),
        (["llava-1.5-7b", "--gpus-of", "L4=1", "--gpus-of", "L4=2"], "error: --gpus-of: 'L4' is given twice"),
        (
            ["llava-1.5-7b", "--gpus-of", "RTX4090=2"],
            "error: --gpus-of: no option of llava-1.5-7b runs on 'RTX4090': its GPU types are A100-80GB, RTX-4090",
        ),
        (["qwen-image", "--rate", "0"], "error: --rate: must be a finite number greater than 0, not 0"),
        (["qwen-image", "--rate", "inf"], "error: --rate: must be a finite number greater than 0, not inf"),
        (["qwen-image", "--gpus", "1", "--save", "a", "--plot", "./a"], "error: --save, --plot: both name a"),
        (["qwen2.5-omni-7b", "--gpus", "8", "--factor", "x=2"], "error: profile of qwen2.5-omni-7b: factors.x: "),
        (
            ["qwen3-omni-30b-a3b", "--gpus", "8"],
            "error: profile of qwen3-omni-30b-a3b: options.talker: was not measured",
        ),
        (["internvl3-38b", "--gpus", "1"], "error: infeasible: "),
    ],
)
def test_an_error_is_printed_in_one_line(arguments: list[str], error: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 1
    assert result.stderr.startswith(error)
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (app, ["plan", "qwen-image", "--gpus", "2"]),
        (alone, ["plan", "qwen-image", "--gpus", "2"]),
        (alone, ["models"]),
        (alone, ["workload", "check", "requests.csv"]),
        (alone, ["workload", "generate", "requests.csv"]),
    ],
)
def test_a_missing_library_is_reported_with_an_install_command(
    program: Typer, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    result = CliRunner().invoke(program, arguments)

    assert result.exit_code == 1
    assert result.stderr == 'error: highspy: not installed: run pip install "cornserve[planner]"\n'


@pytest.mark.parametrize(
    ("option", "file", "error"),
    [("--save", "/nowhere/plan.json", "cannot be written: "), ("--plot", "plan.xyz", "cannot be drawn: ")],
)
def test_a_plan_is_printed_even_if_it_cannot_be_written(option: str, file: str, error: str) -> None:
    result = run("qwen-image", "--gpus", "1", option, file)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {file}: {error}")
    assert "1 GPU serves 0.1975 requests/s" in result.stdout


def test_names_of_models_are_completed() -> None:
    assert model_names("") == list(shipped_models())
    assert model_names("qwen2.5-o") == ["qwen2.5-omni-7b"]


def test_the_planner_runs_as_a_standalone_program() -> None:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    listed = runner.invoke(alone, ["models"])
    planned = runner.invoke(alone, ["plan", "qwen-image", "--gpus", "2"])
    refused = runner.invoke(alone, ["plan", "gpt-5", "--gpus", "2"])

    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(shipped_models())
    assert "2 GPUs serve 0.395 requests/s" in planned.stdout
    assert (refused.exit_code, refused.stderr.splitlines()[0][:13]) == (1, "error: model:")
