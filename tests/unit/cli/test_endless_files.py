"""Files without an end, such as devices and pipes, are refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app

PLAN = ["plan", "qwen2.5-omni-7b", "--gpus", "16"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([*PLAN, "--workload", "zero.yaml"], "it is a device, not a file"),
        ([*PLAN, "--workload", "zero.jsonl"], "zero.jsonl line 1: is longer than 1 MiB"),
        ([*PLAN, "--profile", "zero.yaml"], "it is a device, not a file"),
        ([*PLAN, "--gpu-types", "zero.yaml"], "it is a device, not a file"),
        (["plan", "zero.yaml", "--gpus", "16"], "it is a device, not a file"),
        (["deploy", "zero.py"], "it is a device, not a file"),
        (["plan", "adapt", "zero.json", "--rate", "1"], "it is a device, not a file"),
        (["simulate", "zero.json"], "it is a device, not a file"),
        (["try", "zero.py", "{}", "--answers", "{}"], "it is a device, not a file"),
        (["invoke", "a", "@zero.json"], "it is a device, not a file"),
        (["bench", "a", "--dataset", "zero.jsonl"], "it is a device, not a file"),
        (["bench", "a", "--request", "zero.json"], "it is a device, not a file"),
        (["chat", "a", "Hi", "--image", "zero.json"], "it is a device, not a file"),
        (["transcribe", "a", "zero.json"], "it is a device, not a file"),
        (["import", "zero.json"], "cannot read zero.json"),
    ],
)
def test_a_file_without_an_end_is_refused(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in ("yaml", "jsonl", "py", "json"):
        (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")

    result = cli.invoke(app, command)

    assert result.exit_code == 1
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        (["invoke", "a", "-"], "cornserve.cli.json_argument.MAX_MIB"),
        (["chat", "a"], "cornserve.cli.chat.MAX_QUESTION_MIB"),
    ],
)
def test_standard_input_without_an_end_is_refused(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, command: list[str], limit: str
) -> None:
    monkeypatch.setattr(limit, 1)

    result = cli.invoke(app, command, input="1" * (2 << 20))

    assert result.exit_code == 1
    assert "has more than 1 MiB" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", [["invoke", "a", "@large"], ["transcribe", "a", "large"]])
def test_a_large_file_is_refused(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    monkeypatch.setattr("cornserve.cli.json_argument.MAX_MIB", 1)
    monkeypatch.setattr("cornserve.client.arguments.MAX_FILE_MIB", 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_bytes(b"1" * (2 << 20))

    result = cli.invoke(app, option)

    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "has more than 1 MiB" in result.stderr
