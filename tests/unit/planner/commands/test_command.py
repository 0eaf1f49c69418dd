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
from cornserve_planner.commands.plan import model_names
from cornserve_planner.goodput import replay
from cornserve_planner.model.shipped import shipped_models
from cornserve_planner.plan_file.document import PlanFile

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
    result = run("qwen2.5-omni-7b", "--gpus", "8", "--factor", "monolith=3", "--explain")

    assert result.exit_code == 0
    for part in (
        "8 request types",
        "5 published, 2 predicted",
        "8 GPUs serve 2.885 requests/s with 20% headroom: 1 cell of 8 GPUs",
        "encoders+llm            5",
        "Limited by the budget of 8 GPUs: encoders+llm is at its maximum utilization",
        "Proven optimal by highs",
        "With fractional replicas",
        "encoders+llm / audio_generator (5, 3)",
        "100.0%",
    ):
        assert part in result.stdout
    # --explain prints sources, factors and all strategies.
    for part in ("monolith 3", "published  [C Table 1]", "gain of one more", "monolith (8)"):
        assert part in result.stdout


def test_user_files_are_planned(files: list[str]) -> None:
    found = document(*files, "--gpus", "5", "--whole", "--utilization", "1")
    (cell,) = found["cells"]

    assert list(found["models"]) == ["tiny"]
    assert found["rate"] == pytest.approx(4.0)
    assert (cell["count"], cell["replicas"]) == (1, {"E": 1, "L": 4})
    assert [[step["option"] for step in path["steps"]] for path in found["types"]["text"]["paths"]] == [["EL"], ["L"]]
    assert cell["probabilities"]["text"] == [0.0, 1.0]
    assert found["explanations"][0]["gain"] == pytest.approx(1.0)


def test_json_contains_cells_and_their_mixture(files: list[str]) -> None:
    found = document(*files, "--gpus", "8", "--largest-cell", "4")

    assert [(cell["gpus"], cell["count"]) for cell in found["cells"]] == [(1, 0), (2, 0), (4, 2)]
    assert [cell["gpus_of"] for cell in found["cells"]] == [{"A100-80GB": cell["gpus"]} for cell in found["cells"]]
    assert found["cells"][0]["rate"] == pytest.approx(0.6 * 0.8)
    assert found["rate"] == pytest.approx(2 * found["cells"][2]["rate"])


def test_a_rate_is_served_with_the_fewest_gpus_or_dollars(files: list[str]) -> None:
    by_gpus = document(*files, "--rate", "1.6", "--whole")
    by_dollars = document(*files, "--rate", "1.6", "--objective", "dollars")
    of_cells = document(*files, "--rate", "1.6")

    assert by_gpus["gpus"] == {"A100-80GB": 3}
    assert by_dollars["dollars"] == pytest.approx(3 * 2.45)
    assert len(by_dollars["cells"]) == 1
    assert of_cells["rate"] >= 1.6 * (1 - 1e-6)
    assert of_cells["direct"]["gpus"] == {"A100-80GB": 3}
    assert of_cells["target"] == 1.6


def test_a_plan_leaves_headroom(files: list[str]) -> None:
    full = document(*files, "--gpus", "5", "--utilization", "1")
    half = document(*files, "--gpus", "5", "--utilisation", "0.5")

    assert half["rate"] == pytest.approx(full["rate"] / 2)
    assert {option["max_utilization"] for option in half["options"].values()} == {0.5}
    assert max(half["explanations"][0]["utilization"].values()) == pytest.approx(0.5)
    assert "requests/s with 50% headroom: " in run(*files, "--gpus", "5", "--utilization", "0.5").stdout
    assert "headroom" not in run(*files, "--gpus", "5", "--utilization", "1").stdout


def test_a_plan_serves_its_rate_after_the_loss_of_a_replica(files: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    alone = document(*files, "--rate", "1.6", "--whole")
    spare = document(*files, "--rate", "1.6", "--survive", "--save", str(saved))
    (cell,) = spare["cells"]

    assert min(cell["replicas"].values()) > 1
    assert cell["rate"] > cell["rate_after_loss"] >= 1.6 * (1 - 1e-6)
    assert spare["gpus"]["A100-80GB"] > alone["gpus"]["A100-80GB"]
    assert PlanFile.read(saved).cells[0].rate_after_loss == cell["rate_after_loss"]
    budget = document(*files, "--gpus", "6", "--survive")["cells"][0]
    assert budget["value"] == budget["rate_after_loss"] < budget["rate"]


FAST_MODELS = {"llava-1.5-7b", "qwen-image"}
"""Their plans take less than a second."""


@pytest.mark.parametrize(
    "model",
    [pytest.param(model, marks=() if model in FAST_MODELS else pytest.mark.slow) for model in shipped_models()],
)
def test_the_answer_for_a_shipped_model_names_its_weak_points(model: str) -> None:
    budget = ["--dollars", "40"] if model == "llava-1.5-7b" else ["--gpus", "16"]
    result = run(model, *budget)
    words = " ".join(result.stdout.split())

    assert result.exit_code == 0, result.stderr
    assert "Rate at 80% utilization, by the errors of the profile: " in words
    assert "which is predicted (" in words
    assert " requests/s instead of " in words
    assert "Measure it first: cornserve profile APP --option " in words


def test_explain_lists_the_times_that_would_change_the_plan() -> None:
    assert "Times at which another plan serves at least 1% more" in run("qwen-image", "--gpus", "8", "--explain").stdout


def test_a_robust_plan_takes_the_longest_times_of_the_confidence_intervals() -> None:
    likely, robust = (document("internvl3-38b", "--gpus", "8", *more) for more in ([], ["--robust"]))
    steps = [step for kind in robust["types"].values() for path in kind["paths"] for step in path["steps"]]

    assert robust["rate"] < likely["rate"]
    assert all(step["seconds"] == step["high"] for step in steps)


CURVES = {
    "request": "seconds: [1.0, 4.0]",
    "first_token": "seconds: [0.1, 0.3]",
    "between_tokens": "seconds: [0.02, 0.05]",
}
CURVE = "{{measures: {}, batch: [1, 8], {}, tag: measured, source: a test}}"


@pytest.fixture
def files_with_latency(files: list[str]) -> list[str]:
    """The arguments for a user's model with the same latency curves for each option."""
    curves = ", ".join(CURVE.format(*curve) for curve in CURVES.items())
    profile = Path(files[-1])
    profile.write_text(profile.read_text().replace("throughput: [", f"latency: [{curves}], throughput: ["))
    return files


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for latency targets simulate few requests."""
    monkeypatch.setattr(replay, "MOST_REQUESTS", 1000)


@pytest.mark.usefixtures("few_requests")
def test_latency_targets_limit_batch_sizes_and_the_rate(files_with_latency: list[str]) -> None:
    free = document(*files_with_latency, "--gpus", "2")
    smooth = document(*files_with_latency, "--gpus", "2", "--tbt", "0.03")
    quick = document(*files_with_latency, "--gpus", "2", "--objective", "goodput", "--e2e", "6")

    assert {option["batch"] for option in free["options"].values()} == {8}
    assert {option["batch"] for option in smooth["options"].values()} == {1}
    assert 0 < quick["rate"] < free["rate"] / 0.8


def test_a_throughput_beyond_the_latency_curve_is_refused(files_with_latency: list[str]) -> None:
    profile = Path(files_with_latency[-1])
    profile.write_text(profile.read_text().replace("value: 1.0,", "value: 50.0,"))
    result = run(*files_with_latency, "--gpus", "8")

    assert result.exit_code == 1
    assert "options.L.throughput.0.rate: is 50 requests/s, but the latency curve allows 2 (" in result.stderr


def test_missed_latency_targets_are_explained(files_with_latency: list[str]) -> None:
    result = run(*files_with_latency, "--gpus", "2", "--e2e", "0.5")

    assert result.exit_code == 1
    assert result.stderr.startswith(
        "error: infeasible: the latency targets: no candidate meets them, even at a low rate: "
    )
    assert len(result.stderr.splitlines()) == 1


def test_a_budget_can_have_several_gpu_types() -> None:
    found = document("llava-1.5-7b", "--gpus-of", "RTX-4090=1", "--gpus-of", "A100-80GB=2")
    (cell,) = found["cells"]

    assert cell["replicas"].keys() >= {"encoder-4090"}
    assert found["gpus"] == {"RTX-4090": 1, "A100-80GB": 2}
    assert (
        "1 RTX-4090 + 2 A100-80GB serve"
        in run("llava-1.5-7b", "--gpus-of", "RTX-4090=1", "--gpus-of", "A100-80GB=2").stdout
    )


def test_a_budget_in_dollars_maximizes_the_rate(files: list[str]) -> None:
    found = document(*files, "--dollars", "12.3")
    same = document(*files, "--gpus", "5", "--whole")

    assert found["gpus"] == {"A100-80GB": 5}
    assert found["rate"] == pytest.approx(same["rate"])
    assert found["dollars"] == pytest.approx(5 * 2.45)
    assert "the budget of $12.3 an hour" in run(*files, "--dollars", "12.3").stdout


def test_gpus_of_several_types_are_not_added() -> None:
    by_dollars = document("llava-1.5-7b", "--rate", "10")
    within = document("llava-1.5-7b", "--dollars", str(by_dollars["dollars"]))

    assert by_dollars["cells"][0]["objective"] == "dollars"
    assert within["rate"] >= 10 * (1 - 1e-5)
    assert run("llava-1.5-7b", "--dollars", "10").stdout.count(" A100-80GB") >= 2


def test_a_file_of_requests_sets_the_shares_and_the_rate(tmp_path: Path) -> None:
    requests = tmp_path / "day.jsonl"
    lines = ['{"format": "cornserve-planner/requests", "version": 1}']
    lines += [f'{{"arrival": {second / 2}, "images": [{{"tokens": 600}}], "text_tokens": 9}}' for second in range(5)]
    requests.write_text("\n".join(lines) + "\n")
    found = document("qwen2.5-omni-7b", "--workload", str(requests))

    shares = {name: kind["share"] for name, kind in found["types"].items()}
    assert shares.pop("llm+image_encoder") == 1
    assert shares.pop("llm+image_encoder+video_encoder") == 0
    assert not any(shares.values())
    assert found["target"] == pytest.approx(2.0)


def test_both_solvers_find_the_same_rate(files: list[str]) -> None:
    rates = [document(*files, "--gpus", "7", "--solver", solver)["rate"] for solver in ("highs", "cbc")]

    assert rates[0] == pytest.approx(rates[1])


def test_a_saved_plan_has_the_printed_fields(files: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    found = document(*files, "--gpus", "6", "--save", str(saved))
    read = PlanFile.read(saved).model_dump(mode="json")

    assert read == {name: found[name] for name in read}


@pytest.mark.parametrize("name", ["plan.svg", "plan.png"])
def test_a_plan_is_drawn(files: list[str], tmp_path: Path, name: str) -> None:
    drawn = tmp_path / name
    assert run(*files, "--gpus", "8", "--plot", str(drawn)).exit_code == 0

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
        (["gpt-5", "--gpus", "8"], "error: model: unknown model 'gpt-5': the shipped models are internvl3-38b, "),
        (["nowhere.yaml", "--gpus", "8"], "error: nowhere.yaml: cannot be read: No such file or directory"),
        (["--gpus", "8"], "error: MODEL: is missing: give the name of a shipped model"),
        (["qwen2.5-omni-7b"], "error: --gpus, --rate: give exactly one"),
        (["qwen2.5-omni-7b", "--gpus", "8", "--rate", "2"], "error: --gpus, --rate: give exactly one"),
        (["qwen2.5-omni-7b", "--gpus", "8", "--objective", "dollars"], "error: --objective: dollars needs a --rate"),
        (
            ["llava-1.5-7b", "--gpus", "8"],
            "error: --gpus: GPUs of different types cannot be added (A100-80GB, RTX-4090): give --gpus-of TYPE=N for",
        ),
        (
            ["llava-1.5-7b", "--rate", "8", "--objective", "gpus"],
            "error: --objective: GPUs of different types cannot be added (A100-80GB, RTX-4090): use --objective d",
        ),
        (["qwen-image", "--dollars", "0"], "error: --dollars: must be a finite number greater than 0, not 0"),
        (["qwen-image", "--dollars", "9", "--rate", "2"], "error: --gpus, --rate: give exactly one"),
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
        (
            ["qwen2.5-omni-7b", "--rate", "1e300"],
            "error: rate: needs 2.63e+300 cells: give one that needs at most 1e+18",
        ),
        (
            ["qwen2.5-omni-7b", "--gpus", "9" * 20],
            "error: gpus: needs 1.00e+20 cells: give one that needs at most 1e+18",
        ),
        (["qwen-image", "--rate", "inf"], "error: --rate: must be a finite number greater than 0, not inf"),
        (["qwen-image", "--gpus", "1", "--save", "a", "--plot", "./a"], "error: --save, --plot: both name a"),
        (["qwen2.5-omni-7b", "--gpus", "8", "--factor", "x=2"], "error: profile of qwen2.5-omni-7b: factors.x: "),
        (["internvl3-38b", "--gpus", "1"], "error: infeasible: "),
        (["qwen-image", "--gpus", "1", "--utilization", "0"], "error: --utilization: must be greater than 0"),
        (["qwen-image", "--gpus", "1", "--ttft", "-1"], "error: --ttft: must be"),
        (["qwen-image", "--gpus", "1", "--ttft", "x=1"], "error: --ttft: 'x' is not a request type: use "),
        (["qwen-image", "--gpus", "1", "--objective", "goodput"], "error: --objective: goodput needs a target: "),
        (
            ["qwen-image", "--rate", "1", "--objective", "goodput", "--e2e", "9"],
            "error: --objective: goodput needs a budget",
        ),
        (
            ["qwen-image", "--gpus", "1", "--e2e", "9", "--survive"],
            "error: --ttft, --tbt, --e2e: are not supported",
        ),
        (["qwen-image", "--gpus", "1", "--percentile", "100"], "error: --percentile: must be between 0 and 100"),
        (
            ["qwen-image", "--gpus", "1", "--e2e", "0.001"],
            "error: infeasible: the latency targets: no candidate meets them, even at a low rate",
        ),
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
    [
        ("--save", "/nowhere/plan.json", "/nowhere/plan.json cannot be written: the directory /nowhere does not exist"),
        ("--plot", "/nowhere/plan.svg", "/nowhere/plan.svg cannot be written: the directory /nowhere does not exist"),
        (
            "--save",
            "~nosuchuser/plan.json",
            "~nosuchuser/plan.json: the home directory is unknown",
        ),
        ("--plot", "plan.xyz", "plan.xyz: unknown format '.xyz': use .svg, .png, .pdf"),
    ],
)
def test_an_output_file_is_checked_before_planning(option: str, file: str, error: str) -> None:
    result = run("qwen-image", "--gpus", "1", option, file)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {option}: {error}")
    assert result.stdout == ""


def test_a_plan_is_printed_even_if_it_cannot_be_written() -> None:
    result = run("qwen-image", "--gpus", "1", "--save", "/dev/full")

    assert result.exit_code == 1
    assert result.stderr == "error: /dev/full: cannot be written: No space left on device\n"
    assert "1 GPU serves 0.158 requests/s" in result.stdout


def test_names_of_models_are_completed() -> None:
    assert model_names("") == list(shipped_models())
    assert model_names("qwen2.5-o") == ["qwen2.5-omni-7b"]


def test_the_planner_runs_as_a_standalone_program() -> None:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    listed = runner.invoke(alone, ["models"])
    planned = runner.invoke(alone, ["plan", "qwen-image", "--gpus", "2"])
    refused = runner.invoke(alone, ["plan", "gpt-5", "--gpus", "2"])

    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(shipped_models())
    assert "2 GPUs serve 0.316 requests/s" in planned.stdout
    assert (refused.exit_code, refused.stderr.splitlines()[0][:13]) == (1, "error: model:")
