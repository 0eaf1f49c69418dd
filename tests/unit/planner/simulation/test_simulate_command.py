"""The `cornserve simulate` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from cornserve.cli.commands import app
from cornserve_planner.__main__ import app as alone
from cornserve_planner.commands.simulate import complete_routing
from tests.unit.planner.simulation.conftest import OPTION, profile_text


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["simulate", *arguments])


@pytest.fixture
def plan(inputs: Path) -> str:
    return str(inputs / "plan.json")


def test_the_text_has_latencies_paths_utilization_and_costs(plan: str, inputs: Path) -> None:
    result = run(
        plan, "--requests", "500", "--ttft", "2", "--workload", str(inputs / "workload.yaml"), "--profile",
        str(inputs / "steps.yaml"),
    )  # fmt: skip

    assert result.exit_code == 0, result.stderr
    assert "500 of 500 requests completed in " in result.stdout
    assert "of the admitted requests met the ttft target of 2 s" in result.stdout
    assert "E → L → V" in result.stdout
    assert "step model" in result.stdout
    assert "GPU-hours: " in result.stdout


def test_json_has_the_same_numbers_in_both_programs(plan: str) -> None:
    found = run(plan, "--requests", "200", "--json")
    other = CliRunner().invoke(alone, ["simulate", plan, "--requests", "200", "--json"])

    document: dict[str, Any] = json.loads(found.stdout)
    assert document == json.loads(other.stdout)
    assert document["completed"] == document["requests"] == 200
    assert document["executors"]["L"]["replicas"] == 5
    assert document["latency"]["text"]["e2e"]["p50"]["value"] >= 0.5


def test_one_seed_gives_the_same_bytes_in_each_process(plan: str) -> None:
    """Sets of texts have another order in each process, unless `PYTHONHASHSEED` is set."""
    options = "--requests 300 --seed 7 --json --autoscale L=2 --autoscale E=4 --ttft 5 --fail E@3"
    command = [sys.executable, "-m", "cornserve_planner", "simulate", plan, *options.split()]
    outputs = []
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        outputs.append(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)

    assert outputs[0] == outputs[1]


def test_a_model_is_planned_before_it_is_simulated(plan: str, inputs: Path) -> None:
    files = ["--profile", str(inputs / "profile.yaml"), "--workload", str(inputs / "workload.yaml")]
    options = [*files, "--rate", "8", "--requests", "200", "--json"]

    of_plan = json.loads(run(plan, *options).stdout)
    of_model = json.loads(run(str(inputs / "model.yaml"), *options).stdout)
    larger = json.loads(run(str(inputs / "model.yaml"), *options, "--gpus", "16").stdout)

    assert of_model == {**of_plan, "plan": "model.yaml"}
    assert sum(each["replicas"] for each in larger["executors"].values()) == 16


APP = """
from cornserve_echo.stages import caption_app

app = caption_app(name="captions", encoder=0.1, llm=0.3)
"""

APP_PROFILE = "format: cornserve-planner/profile\nversion: 1\nmodel: captions\noptions:\n" + "\n".join(
    OPTION.format(name, rate, "") for name, rate in (("encoder", 10.0), ("llm", 3.0), ("encoder+llm", 2.0))
)

APP_WORKLOAD = """
format: cornserve-planner/workload
version: 1
types:
  encoder+llm: {components: [encoder, llm], share: 1.0}
"""


@pytest.fixture
def app_files(tmp_path: Path) -> list[str]:
    """The arguments that simulate an app with its profile."""
    texts = {"captions.py": APP, "profile.yaml": APP_PROFILE, "workload.yaml": APP_WORKLOAD}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    app, profile, workload = (str(tmp_path / name) for name in texts)
    return [app, "--profile", profile, "--workload", workload]


def test_an_app_is_simulated_with_its_profile(app_files: list[str]) -> None:
    result = run(*app_files, "--gpus", "4", "--requests", "300", "--json")

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["plan"], document["completed"]) == ("captions.py", 300)
    assert sum(each["replicas"] for each in document["executors"].values()) == 4
    assert document["latency"]["encoder+llm"]["e2e"]["p50"]["value"] >= 0.4


def test_the_replicas_of_an_app_are_given_or_planned(app_files: list[str]) -> None:
    result = run(
        *app_files, "--replicas", "encoder=1", "--replicas", "llm=2", "--rate", "2", "--requests", "50", "--json"
    )

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert {name: each["replicas"] for name, each in document["executors"].items()} == {"encoder": 1, "llm": 2}
    assert [path["path"] for path in document["paths"]] == [["encoder", "llm"]]


def test_given_replicas_need_a_rate(app_files: list[str]) -> None:
    result = run(*app_files, "--replicas", "encoder+llm=1")

    assert result.exit_code == 1
    assert result.stderr.endswith("error: --rate: is missing: given replicas have no planned rate\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replicas", "vocoder=1"], "--replicas: 'vocoder' is not an option of captions: use one of encoder+llm"),
        (["--replicas", "encoder=1"], "infeasible: --replicas: serve only a part of the request types"),
        (["--replicas", "llm=0"], "--replicas llm: must be from 1 to 1e+06, not 0"),
        (["--replicas", "llm=9999999999"], "--replicas llm: must be from 1 to 1e+06, not 1e+10"),
        (["--replicas", "llm=x"], "--replicas must be OPTION=N, a name and a whole number, not 'llm=x'"),
        (["--replicas", "encoder+llm=1", "--gpus", "4"], "--gpus, --replicas: give one of them"),
    ],
)
def test_wrong_replicas_of_an_app_are_refused(app_files: list[str], arguments: list[str], message: str) -> None:
    result = run(*app_files, "--rate", "1", *arguments)

    assert result.exit_code == 1
    *progress, error = result.stderr.splitlines()
    assert message in error
    assert progress in ([], ["importing captions.py …"])  # A slow import is shown.


def test_the_planner_alone_simulates_no_apps(app_files: list[str]) -> None:
    result = CliRunner().invoke(alone, ["simulate", *app_files, "--gpus", "4"])

    assert result.exit_code == 1
    assert "captions.py: `python -m cornserve_planner` cannot read apps: use `cornserve`" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "PLAN: is missing: give a plan file, an app, or a log with --replay"),
        (["plan.json", "--gpus", "4"], "--gpus, --replicas: are those of the plan file: remove them, or give an app"),
        (["missing.py", "--gpus", "4"], "cannot read missing.py"),
        (["model.yaml"], "model.yaml: cannot be read: No such file or directory"),
        (["internvl3-38b", "--rate", "0"], "--rate: must be a finite number greater than 0, not 0.0"),
    ],
)
def test_wrong_plans_and_apps_are_refused_in_one_line(arguments: list[str], message: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_plot_shows_latencies_rates_and_gpus_over_time(plan: str, tmp_path: Path) -> None:
    files = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for file in files:
        assert run(plan, "--requests", "300", "--adapt", "--plot", str(file)).exit_code == 0

    text = files[0].read_text()
    assert text == files[1].read_text()
    for label in ("Complete responses, by arrival", "p95", "Completed requests", "by end", "GPUs of all cells"):
        assert label in text


def test_names_of_routing_policies_are_completed() -> None:
    assert complete_routing("least-") == ["least-loaded", "least-tokens"]


FIRST = (
    ", latency: [{batch: [4], seconds: [0.5], tag: measured, source: a test},"
    " {measures: first_token, batch: [8], seconds: [0.1], tag: measured, source: a test}]"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--routing", "nearest"], "--routing: unknown routing policy 'nearest': use one of least-loaded"),
        (["--rate", "0"], "--rate: must be a finite number greater than 0, not 0.0"),
        (["--rate", "nan"], "--rate: must be a finite number greater than 0, not nan"),
        (["--rate", "1e-300"], "--rate: is 1e-300: the requests take more than 10,000 years"),
        (["--requests", "100000000000000000000"], "--requests: must be from 1 to 1e+07, not 1e+20"),
        (["--latency", "1e308"], "--latency: must be from 0 to 3e+11, not 1e+308"),
        (["--gateway-seconds", "nan"], "--gateway-seconds: must be from 0 to 3e+11, not nan"),
        (["--workload", "late.jsonl"], "late.jsonl line 3: arrival: must be less than or equal to 300000000000"),
        (["--workload", "long.jsonl", "--rate", "1e-300"], "--rate: is too low: the requests take more than 10,000 ye"),
        (["--latency", "-1"], "--latency: must be from 0 to 3e+11, not -1"),
        (["--ttft", "1e308"], "--ttft: must be from 0 to 3e+11, not 1e+308"),
        (["--autoscale", "L=1e-308"], "--autoscale: the capacity of a replica is below 1e-06: 1e-308"),
        (["--ttft", "inf"], "--ttft: must be a finite number greater than 0, not inf"),
        (["--refuse"], "--refuse: needs --ttft or --e2e, the targets that refused requests would miss"),
        (["--transfer", "X=5"], "--transfer: 'X' is not in the plan: use one of E, L, V"),
        (["--transfer", "E=-5"], "--transfer E: must be a finite number of at least 0, not -5.0"),
        (["--transfer", "E"], "--transfer must be OPTION=BYTES, a name and a number, not 'E'"),
        (["--stream", "X"], "--stream: 'X' is not in the plan: use one of encoder, llm, vocoder"),
        (["--fail", "X@5"], "--fail: 'X' is not in the plan: use one of E, L, V"),
        (["--fail", "E"], "--fail must be OPTION@SECONDS, such as encoder@60, not 'E'"),
        (["--fail", "E@-1"], "--fail E: must be from 0 to 3e+11, not -1"),
        (["--plot", "x.txt"], "--plot: "),
        (
            ["--startup", "5"],
            "--startup: needs --adapt, which starts cells, or --autoscale or --fail, which start replicas",
        ),
        (["--adapt", "--rate", "1e-9"], "--adapt, --autoscale: a request arrives after "),
        (["--autoscale", "L=2", "--rate", "1e-9"], "--adapt, --autoscale: a request arrives after "),
        (["--most-gpus", "5"], "--most-gpus: needs --adapt, which starts cells"),
        (["--most-gpus", "7", "--adapt"], "--most-gpus: is 7, but the plan has 8 GPUs"),
        (["--plot", "~nosuchuser/x.svg"], "--plot: ~nosuchuser/x.svg: the home directory is unknown"),
        (["--autoscale", "L=2", "--autoscale", "L"], "--autoscale: an option is given twice: remove one of them"),
        (
            ["--autoscale", "L=2", "--autoscale", "hold_seconds=5"],
            "--autoscale: hold_seconds is not simulated: use window_seconds, shrink_seconds, dwell_seconds",
        ),
        (
            ["--autoscale", "L=2", "--autoscale", "window_seconds=x"],
            "--autoscale must be a time in seconds, such as window_seconds=20, not 'window_seconds=x'",
        ),
        (["--startup", "5,x", "--adapt"], "--startup must be seconds, such as 30 or 25,30,60, not '5,x'"),
        (["--startup", "5,-1", "--adapt"], "--startup: must be from 0 to 3e+11, not -1"),
        (["--racks", "72"], "--racks must be a number of bits per second, such as 400Gbit/s, not ''"),
        (["--racks", "x:1Gbit/s:0"], "--racks must be GPUS:RATE:SECONDS, such as 72:3.2Tbit/s:5e-6, not 'x:1Gbit/s:0'"),
        (["--racks", "72:1Gbit/s:nan"], "--racks: must be a finite number of at least 0, not nan"),
        (
            ["--bandwidth", "0.001bit/s", "--transfer", "E=1e300"],
            "--bandwidth: a transfer of E takes more than 10,000 years: raise it",
        ),
        (["--bandwidth", "fast"], "--bandwidth must be a number of bits per second"),
        (["--profile", "steps.yaml"], "--workload: L has a step model, but the tokens of a request of type"),
        (
            ["--profile", "steps.yaml", "--workload", "images.yaml"],
            "--workload: L has a step model, but the tokens of a request of type 'speech' are unknown",
        ),
        (
            ["--profile", "first.yaml"],
            "profile of tiny: options.E.latency: batch: 8 is outside the measured batch sizes (4,): measure it",
        ),
        (["--profile", "other.yaml"], "--profile: is for 'other', but the plan serves tiny: give its profile"),
        (["--profile", "none.yaml"], "none.yaml: cannot be read: No such file or directory"),
        (["--workload", "empty.jsonl"], "--workload: has no requests: give at least one"),
        (["--workload", "video.jsonl"], "has video input, which the model does not support"),
        (["--workload", "video.jsonl", "--rate", "3"], "--rate: video.jsonl has no recorded rate"),
    ],
)
def test_wrong_inputs_are_refused_in_one_line(
    plan: str, inputs: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    header = '{"format": "cornserve-planner/requests", "version": 1}\n'
    for name, text in (
        ("steps.yaml", (inputs / "steps.yaml").read_text()),
        ("other.yaml", profile_text().replace("tiny", "other")),
        ("images.yaml", (inputs / "workload.yaml").read_text().replace("image_tokens: 400, ", "")),
        ("first.yaml", profile_text(latency=FIRST)),
        ("empty.jsonl", header),
        ("video.jsonl", header + '{"arrival": 0, "videos": [{"seconds": 3}]}\n'),
        ("long.jsonl", header + '{"arrival": 0, "text_tokens": 1}\n{"arrival": 9, "text_tokens": 1}\n'),
        ("late.jsonl", header + '{"arrival": 0, "text_tokens": 1}\n{"arrival": 1e308, "text_tokens": 1}\n'),
    ):
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / argument) if argument.endswith((".yaml", ".jsonl")) else argument for argument in arguments]

    result = run(plan, "--requests", "5", *files)

    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("fixed: 0", "fixed, weights: are both 0: a step takes time"),
        ("fixed: 0.01, max_num_seqs: 9000", "max_num_batched_tokens: is 8192, not above max_num_seqs, 9000"),
        ("fixed: 0.01, block_size: 99999", "options.1.step.block_size: "),
        ("fixed: 0.01, cache_tokens: 5", "cache_tokens: are 5, less than a block of 16"),
        ("fixed: .inf", "options.1.step.fixed: "),
    ],
)
def test_impossible_step_models_are_refused(plan: str, tmp_path: Path, step: str, message: str) -> None:
    text = (
        f", step: {{{step}{'' if 'cache_tokens' in step else ', cache_tokens: 16000'}, tag: measured, source: a test}}"
    )
    (tmp_path / "profile.yaml").write_text(profile_text(step=text))

    result = run(plan, "--profile", str(tmp_path / "profile.yaml"))

    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 10**15}, "cells: run 8,000,000,000,000,000 replicas: at most 1,000,000 are simulated"),
        ({"count": 0}, "cells: none runs: make the plan for a rate or a number of GPUs"),
    ],
)
def test_plans_with_impossible_numbers_of_cells_are_refused(
    plan: str, tmp_path: Path, change: dict[str, int], message: str
) -> None:
    fields = json.loads(Path(plan).read_text())
    fields["cells"][-1].update(change)
    fields["target"] = None
    (tmp_path / "changed.json").write_text(json.dumps(fields))

    result = run(str(tmp_path / "changed.json"))

    assert result.exit_code == 1
    assert message in result.stderr


def test_the_failure_of_an_option_that_does_not_run_is_refused(plan: str, tmp_path: Path) -> None:
    fields = json.loads(Path(plan).read_text())
    fields["options"]["W"] = fields["options"]["V"]
    (tmp_path / "changed.json").write_text(json.dumps(fields))

    result = run(str(tmp_path / "changed.json"), "--requests", "5", "--fail", "W@0.5")

    assert result.exit_code == 1
    assert result.stderr == "error: --fail: no cell runs 'W' at 0.5 s: use another option\n"


def test_plans_with_huge_batches_are_refused(plan: str, tmp_path: Path) -> None:
    fields = json.loads(Path(plan).read_text())
    fields["options"]["E"]["batch"] = 10**15
    (tmp_path / "changed.json").write_text(json.dumps(fields))

    result = run(str(tmp_path / "changed.json"))

    assert "options.E.batch: is a batch of 1000000000000000: at most 4096 requests are simulated" in result.stderr


@pytest.mark.parametrize("program", [app, alone], ids=["cornserve", "the planner alone"])
def test_a_plan_does_not_control_the_terminal(plan: str, tmp_path: Path, program: typer.Typer) -> None:
    document = json.loads(Path(plan).read_text())
    document["options"] = {f"\x1b[31m{name}\x1b]0;title\x07": option for name, option in document["options"].items()}
    hostile = tmp_path / "hostile.json"
    hostile.write_text(json.dumps(document))

    result = CliRunner().invoke(program, ["simulate", str(hostile)])

    assert result.exit_code == 1
    assert "must not have control characters" in result.stderr
    assert r"\x1b[31m" in result.stderr
    assert not {"\x1b", "\x07"} & {*result.stderr}
