"""Output of commands for responses, and warnings before an instance starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from cornserve.instance import Instance
from tests.unit.http_server import StubServer, json_response

RESPONSE: dict[str, object] = {
    "text": "a",
    "words": None,
    "tools": [],
    "usage": {"tokens": 0, "cached": None},
    "ok": False,
    "name": "",
}
HOSTILE_EVENT = {"type": "Warning", "reason": "Failed", "object": "Pod/llm-0", "message": "read\x1b[2J"}

PRINTING_APP = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

print("imported")
app = App(name="caption", paths=[Caption(llm=StageTask(seconds={"llm": 0.02}))], probes=[CaptionRequest()])
"""


def test_fields_that_are_null_or_empty_are_left_out_unless_json_is_asked_for(
    cli: CliRunner, server: StubServer
) -> None:
    server.on("POST /v1/apps/a/invoke", json_response(RESPONSE))
    short = cli.invoke(app, ["invoke", "a", "{}", "--url", server.url])
    complete = cli.invoke(app, ["invoke", "a", "{}", "--url", server.url, "--json"])
    assert json.loads(short.stdout) == {"text": "a", "usage": {"tokens": 0}, "ok": False}
    assert json.loads(complete.stdout) == RESPONSE


def test_up_warns_of_gpus_that_the_machine_does_not_have(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    failing = ["up", "--home", str(tmp_path), "--port", "0", "--internal-tls", str(tmp_path / "missing")]
    warned = cli.invoke(app, [*failing, "--gpus", "3"]).stderr.splitlines()
    assert warned[0] == "warning: --gpus 3: this machine has no GPUs, so executors run on the CPU"
    assert "warning" not in cli.invoke(app, [*failing, "--gpus", "0"]).stderr


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_up_refuses_tls_with_a_library_that_does_not_encrypt(
    cli: CliRunner, tmp_path: Path, options: list[str]
) -> None:
    home = tmp_path / "home"

    refused = cli.invoke(
        app, ["up", "--home", str(home), "--internal-tls", str(tmp_path), "--transport", "ucx", *options]
    )

    assert refused.exit_code == 1
    assert refused.stderr == "error: UCX does not encrypt: with --internal-tls, leave out --transport ucx\n"
    assert not home.exists()


def test_an_instance_that_runs_is_shown_if_clients_cannot_use_it_in_this_environment(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance.of_current_process("http://127.0.0.1:1")
    monkeypatch.setattr("cornserve.cli.detached.start_detached", lambda options: instance)

    started = cli.invoke(app, ["up", "--detach", "--home", str(tmp_path)], env={"CORNSERVE_API_KEY": "not a key"})

    assert (started.exit_code, started.stderr) == (0, "")
    assert started.stdout.startswith(f"Cornserve listens on {instance.url}   {tmp_path}\n")


def test_paths_are_not_markup(cli: CliRunner, tmp_path: Path) -> None:
    home = tmp_path / "[bold]home"

    result = cli.invoke(app, ["down", "--home", str(home)])

    assert result.stdout == f"No instance of Cornserve runs for {home}\n"


def test_prints_of_an_app_are_not_part_of_the_json_of_its_profile(cli: CliRunner, tmp_path: Path) -> None:
    (file := tmp_path / "caption.py").write_text(PRINTING_APP)

    listed = cli.invoke(app, ["profile", str(file), "--dry-run", "--json", "--home", str(tmp_path)])

    assert listed.exit_code == 0, listed.stderr
    assert [entry["option"] for entry in json.loads(listed.stdout)] == ["llm"]
    assert "imported" in listed.stderr


@pytest.mark.parametrize("arguments", [["models"], ["models", "--json"]])
def test_a_full_disk_is_reported_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cornserve.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    expected = (1, "error: cannot write to standard output: No space left on device\n")
    assert (done.returncode, done.stderr) == expected


def test_errors_are_one_line_without_control_characters(cli: CliRunner, server: StubServer) -> None:
    error = {"error": {"message": "first\n  second \x1b[2J \u202etxt.exe \u2028 third"}}
    server.on("POST /v1/apps/a/invoke", json_response(error, status=400))

    failed = cli.invoke(app, ["invoke", "a", "{}", "--url", server.url])

    assert failed.exit_code == 1
    assert failed.stderr == "error: first second \\x1b[2J \\u202etxt.exe third\n"


def test_what_the_code_of_an_app_writes_is_printed_once(cli: CliRunner, server: StubServer) -> None:
    call = {"task": "Echo", "round": 1, "line": "app.py:3", "request": {"text": "a"}, "output": {"text": "a"}}
    log = ["app.py:4: corn", '  File "app.py", line 5, in invoke', "builtins.ValueError"]
    run = {"calls": [call], "error": "ValueError: no corn (app.py:5 in invoke)", "log": log}
    server.on("POST /admin/v1/apps/a/record", json_response(run))

    tried = cli.invoke(app, ["try", "a", "{}", "--url", server.url])
    as_json = cli.invoke(app, ["try", "a", "{}", "--json", "--url", server.url])

    assert tried.stdout.splitlines()[0] == "round 1"
    assert tried.stderr.splitlines() == [*log, "error: ValueError: no corn (app.py:5 in invoke)"]
    assert as_json.stderr == tried.stderr
    assert json.loads(as_json.stdout) == {"calls": [call], "error": run["error"]}


@pytest.mark.parametrize(
    ("arguments", "path", "document"),
    [
        (["logs", "a"], "/admin/v1/apps/a/logs?lines=100", {"replicas": [{"id": "llm-0", "lines": ["read\x1b[2J"]}]}),
        (["status", "a", "--events"], "/admin/v1/apps/a/history", {"events": [HOSTILE_EVENT]}),
    ],
)
def test_texts_of_apps_do_not_control_the_terminal(
    cli: CliRunner, server: StubServer, arguments: list[str], path: str, document: dict[str, object]
) -> None:
    server.on(f"GET {path}", json_response(document))

    result = cli.invoke(app, [*arguments, "--url", server.url])

    assert result.exit_code == 0, result.stderr
    assert r"read\x1b[2J" in result.stdout
    assert "\x1b" not in result.stdout
