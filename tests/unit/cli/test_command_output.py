"""Output of commands for responses, and warnings before an instance starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
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
