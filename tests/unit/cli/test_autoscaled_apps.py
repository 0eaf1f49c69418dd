"""Commands for apps that are autoscaled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cornserve.cli.autoscaling_options import AutoscalingOption
from cornserve.cli.commands import app
from cornserve.cli.console import CliError
from cornserve.cli.derived_capacity import DerivedCapacity
from cornserve_planner.goodput import replay
from tests.unit.app.plans import cell, plan_document
from tests.unit.http_server import StubServer, json_response, sse_response

UNREACHABLE = "http://127.0.0.1:1"


def test_executors_and_their_loads_are_part_of_the_spec(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/b", json_response({"error": {"message": "stored"}}, 400))
    settings = ["llm=2000tokens:1-4", "resize=8.5requests", "shrink_seconds=600"]
    arguments = [argument for setting in settings for argument in ("--autoscale", setting)]

    cli.invoke(app, ["deploy", "a/b", *arguments, "--routing", "static", "--url", server.url])

    assert server.requests[-1][1]["policies"] == {
        "routing": "static",
        "binding": "early",
        "autoscaling": {
            "executors": [
                {"name": "llm", "capacity": 2000, "unit": "tokens", "min_replicas": 1, "max_replicas": 4},
                {"name": "resize", "capacity": 8.5, "unit": "requests"},
            ],
            "shrink_seconds": 600,
        },
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["llm=2000"], "--autoscale: 'llm=2000' is not an executor with the load per second"),
        (["llm=0tokens"], "--autoscale: policies.autoscaling.executors"),
        (["llm=1tokens:4-2"], "--autoscale: policies.autoscaling: 4 to 2 replicas: the first number"),
        (["llm=1tokens", "llm=2tokens"], "--autoscale: policies.autoscaling: executors: 'llm' is given more than once"),
        (["shrink_seconds=10"], "--autoscale: policies.autoscaling.executors"),
        (["llm=1tokens", "shrink_seconds=x"], "--autoscale must be a time in seconds, such as window_seconds=20, not"),
        (["llm=1tokens", "shrink_seconds=nan"], "--autoscale: policies.autoscaling.shrink_seconds"),
        (["llm=1tokens", "grow_seconds=5"], "--autoscale: policies.autoscaling.grow_seconds"),
        (["dwell_seconds=5", "dwell_seconds=6"], "--autoscale: 'dwell_seconds' is given twice: remove one of them"),
        (["llm=1tokens", "--adapt", "on"], "--autoscale: policies: adaptation changes the cells of a plan, and auto"),
    ],
)
def test_settings_that_cannot_be_used_are_rejected(cli: CliRunner, settings: list[str], message: str) -> None:
    arguments = [part for each in settings for part in ([each] if each in ("--adapt", "on") else ["--autoscale", each])]
    result = cli.invoke(app, ["deploy", "a/b", *arguments, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


CAPTIONS = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

path = Caption(llm=StageTask(seconds={"llm": 0.05}), encoder=StageTask(seconds={"encoder": 0.1}))
app = App("caption", [path], probes=[CaptionRequest(text="Hello!"), CaptionRequest(text="What is this?", images=1)])
"""

TWO_NAMES = CAPTIONS.replace("encoder=StageTask(", "encoder=Encoder(").replace(
    "\npath =", "\n\nclass Encoder(StageTask):\n    executor = 'encoder'\n\n\npath ="
)

RATES = {"encoder": 10, "llm": 20}

REQUESTS = {"text_tokens": 100, "images": 1, "image_tokens": 300, "output_tokens": 10}

WORKLOAD = {
    "format": "cornserve-planner/workload",
    "version": 1,
    "types": {"images": {"components": ["encoder", "llm"], "share": 1, "sizes": REQUESTS}},
}

PROFILE = {
    "format": "cornserve-planner/profile",
    "version": 1,
    "model": "caption",
    "options": [
        {
            "option": name,
            "gpu": "cpu",
            "throughput": [{"rate": {"value": rate, "unit": "requests/s", "tag": "measured", "source": "a test"}}],
        }
        for name, rate in RATES.items()
    ],
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["stage:1-4"], {"name": "stage", "unit": "tokens", "min_replicas": 1, "max_replicas": 4}),
        (["stage=5requests"], {"name": "stage", "unit": "requests", "capacity": 5.0}),
    ],
)
def test_the_load_of_a_replica_follows_from_the_profile_and_the_target_unless_it_is_given(
    cli: CliRunner, server: StubServer, tmp_path: Path, settings: list[str], expected: dict[str, Any]
) -> None:
    def capacity(ttft: str) -> float:
        found = autoscaled(cli, server, tmp_path, [*settings], ttft, WORKLOAD)
        assert {name: value for name, value in found.items() if name in expected} == expected
        return float(found["capacity"])

    short, long = capacity("0.5"), capacity("5")
    # A replica of the encoder takes 10 requests/s at most, with 400 tokens each.
    assert short == long == 5 if "=" in settings[0] else 0 < short < long <= 4000


def test_a_load_is_in_requests_if_the_tokens_of_one_option_are_unknown(
    cli: CliRunner, server: StubServer, tmp_path: Path
) -> None:
    sizes = {name: size for name, size in REQUESTS.items() if name != "text_tokens"}  # Only the encoder reads no text.
    types = {"images": {"components": ["encoder", "llm"], "share": 1, "sizes": sizes}}

    found = autoscaled(cli, server, tmp_path, ["stage"], "5", WORKLOAD | {"types": types})

    assert found["unit"] == "requests"
    assert 0 < found["capacity"] <= RATES["encoder"]


def test_one_process_imports_the_file_from_which_loads_follow(
    cli: CliRunner, server: StubServer, tmp_path: Path
) -> None:
    log = tmp_path / "imports"
    code = f"import os\n\nwith open({str(log)!r}, 'a') as log:\n    print(os.getpid(), file=log)\n"

    autoscaled(cli, server, tmp_path, ["stage"], "5", WORKLOAD, code + CAPTIONS)

    assert len(set(log.read_text().split())) == 1


def autoscaled(
    cli: CliRunner,
    server: StubServer,
    folder: Path,
    settings: list[str],
    ttft: str,
    workload: dict[str, Any],
    code: str = CAPTIONS,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the fields of the only executor that a deployed app autoscales."""
    write_files(folder, workload, code)
    server.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
    arguments = [f"--autoscale={setting}" for setting in settings]
    if "=" not in settings[0]:
        arguments += [f"--{name}={folder}/{name}.json" for name in ("workload", "profile")]

    target = str(folder / "caption.py")
    result = cli.invoke(app, ["deploy", target, *arguments, *options, "--ttft", ttft, "--url", server.url])

    assert "stored" in result.stderr, result.stderr
    [found] = server.requests[-1][1]["policies"]["autoscaling"]["executors"]
    return dict(found)


def write_files(folder: Path, workload: dict[str, Any] = WORKLOAD, code: str = CAPTIONS) -> None:
    files = {"caption.py": code, "workload.json": json.dumps(workload), "profile.json": json.dumps(PROFILE)}
    for name, text in files.items():
        (folder / name).write_text(text)


def test_loads_follow_from_the_plan_that_is_made(
    cli: CliRunner, server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST_REQUESTS", 200)

    found = autoscaled(cli, server, tmp_path, ["encoder:1-4"], "5", WORKLOAD, TWO_NAMES, ["--gpus", "4"])

    assert found["unit"] == "tokens"
    assert 0 < found["capacity"] <= 400 * RATES["encoder"]
    [cell] = server.requests[-1][1]["plan"]["cells"]
    assert (sum(cell["replicas"].values()), cell["count"], cell["is_shared"]) == (4, 1, True)


def test_executors_that_the_plan_does_not_run_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    option = AutoscalingOption.parse(["encoder", "llm:1-4", "shrink_seconds=10"])

    assert option.of_plan({"llm": DerivedCapacity(100.0, "tokens")}).names == ["llm"]

    assert "--autoscale: the plan does not run encoder" in capsys.readouterr().err
    with pytest.raises(CliError, match="the plan does not run encoder, llm: name other executors"):
        option.of_plan({})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["stage=1tokens:4-2"], "--autoscale: policies.autoscaling: 4 to 2 replicas"),
        (["stage:4-2"], "--autoscale: policies.autoscaling: 4 to 2 replicas"),
        (["stage", "window_seconds=0"], "--autoscale: policies.autoscaling.window_seconds: "),
        (["stage=1tokens", "--adapt=on"], "--autoscale: policies: adaptation changes the cells of a plan"),
        (["encodr"], "--autoscale: the app has no executor 'encodr': use stage"),
        (["encodr=8requests"], "--autoscale: the app has no executor 'encodr': use stage"),
    ],
)
def test_settings_that_cannot_be_used_are_rejected_before_a_plan_is_made(
    cli: CliRunner, tmp_path: Path, settings: list[str], message: str
) -> None:
    """Options that the profile lacks would be measured first, for minutes."""
    write_files(tmp_path)
    arguments = [each if each.startswith("--") else f"--autoscale={each}" for each in settings]
    files = [f"--{name}={tmp_path}/{name}.json" for name in ("workload", "profile")]

    target = str(tmp_path / "caption.py")
    options = [*files, "--gpus", "4", "--ttft", "5", "--url", UNREACHABLE]
    result = cli.invoke(app, ["deploy", target, *arguments, *options])

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: {message}"), result.stderr
    assert "cells: " not in result.stderr


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (3, "stored"),
        (4, "--autoscale: policies.autoscaling: a plan is autoscaled if it runs one cell, with is_shared"),
    ],
)
def test_only_a_plan_of_one_cell_is_autoscaled(
    cli: CliRunner, server: StubServer, tmp_path: Path, gpus: int, message: str
) -> None:
    server.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
    write_files(tmp_path)
    target, model, saved = (str(tmp_path / name) for name in ("caption.py", "model.yaml", "plan.json"))
    Path(model).write_text(cli.invoke(app, ["plan", "from", target]).stdout)
    files = [f"--{name}={tmp_path}/{name}.json" for name in ("workload", "profile")]
    cli.invoke(app, ["plan", model, f"--gpus={gpus}", *files, f"--save={saved}"])

    arguments = ["--autoscale=stage=8requests", f"--plan={saved}", "--url", server.url]
    result = cli.invoke(app, ["deploy", target, *arguments])

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: {message}"), result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--autoscale", "llm"], "--autoscale: llm has no load of a replica: give llm=2000tokens, or --ttft, --workl"),
        (["--autoscale", "llm:1-4", "--ttft", "2"], "--autoscale: llm has no load of a replica: give llm=2000tokens"),
        (["--autoscale", "llm", "--plan", "p.json"], "--autoscale: --plan gives no load of a replica: give llm=2000"),
    ],
)
def test_a_load_that_does_not_follow_is_missing(cli: CliRunner, arguments: list[str], message: str) -> None:
    result = cli.invoke(app, ["deploy", "a/b", *arguments, "--url", UNREACHABLE])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(f"error: {message}")


def test_the_load_of_an_executor_is_shown(cli: CliRunner, server: StubServer) -> None:
    llm = {"name": "llm", "unit": "tokens", "load": 2600.0, "capacity": 2000.0}
    encoder = {"name": "encoder", "unit": "requests", "capacity": 20.0}
    spec = {"model": "/m", "executor_replicas": {"llm": 2}}
    status = {"phase": "serving", "generation": 1, "adaptation": {"executors": [llm, encoder]}}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": spec, "status": status}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(view))

    lines = cli.invoke(app, ["status", "a", "--url", server.url]).stdout.splitlines()

    assert "load of llm: 2600 of 4000 tokens/s (2 × 2000)" in lines
    assert "load of encoder: not known yet, of 20 requests/s (1 × 20)" in lines


def test_the_load_of_a_stage_of_a_plan_is_shown_with_the_replicas_of_this_app(
    cli: CliRunner, server: StubServer
) -> None:
    groups = [
        {"key": key, "executor": name, "option": option, "wanted": 7, "replicas": [], "cell": ""}
        for key, name, option in (("llm-1", "llm", "L"), ("encoder-1", "encoder", "E"))
    ]
    loads = [
        {"name": "llm", "unit": "tokens", "load": 2600.0, "capacity": 2000.0},
        {"name": "encoder", "unit": "requests", "load": 30.0, "capacity": 20.0},
    ]
    status = {"phase": "serving", "generation": 1, "groups": groups, "adaptation": {"executors": loads}}
    planned = plan_document(cell(3, {"E": 1, "L": 2}, count=1, is_shared=True))
    spec = {"model": "/m", "plan": planned, "executor_replicas": {"encoder": 3}}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": spec, "status": status}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(view))

    lines = cli.invoke(app, ["status", "a", "--url", server.url]).stdout.splitlines()

    assert "load of llm: 2600 of 4000 tokens/s (2 × 2000)" in lines
    assert "load of encoder: 30 of 60 requests/s (3 × 20)" in lines


def test_one_executor_is_scaled(cli: CliRunner, server: StubServer) -> None:
    spec = {"model": "/m", "executor_replicas": {"llm": 3}}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": spec, "status": {}}
    server.on("PUT /admin/v1/apps/a/scale", json_response(view))

    result = cli.invoke(app, ["scale", "a", "--executor", "llm=3", "--no-wait", "--url", server.url])

    assert result.exit_code == 0, result.stderr
    assert server.requests == [("PUT /admin/v1/apps/a/scale", {"executors": {"llm": 3}})]


@pytest.mark.parametrize(
    ("before", "after", "printed"),
    [(2, 34, ["32 running responses moved to other replicas"]), (2, 2, []), (34, 2, [])],
)
def test_moved_streams_are_counted(
    cli: CliRunner, server: StubServer, before: int, after: int, printed: list[str]
) -> None:
    status = {"phase": "serving", "generation": 1}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": {"model": "/m"}, "status": status}
    server.on("PUT /admin/v1/apps/a/scale", json_response(view | {"moved_streams": before}))
    server.on("GET /admin/v1/apps/a/events", sse_response(("app", view | {"version": 2, "moved_streams": after})))
    server.on("GET /v1/models", json_response({"data": [{"id": "a", "uid": "u", "generation": 1}]}))

    result = cli.invoke(app, ["scale", "a", "1", "--url", server.url])

    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if "moved" in line] == printed


@pytest.mark.parametrize("setting", ["llm", "llm=many"])
def test_a_number_of_replicas_that_is_not_one_is_rejected(cli: CliRunner, setting: str) -> None:
    result = cli.invoke(app, ["scale", "a", "--executor", setting, "--url", UNREACHABLE])
    assert (result.exit_code, result.stderr) == (1, f"error: --executor: '{setting}' is not NAME=N, such as llm=3\n")
