"""Files without an end, such as devices, are refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app

PLAN = ["plan", "qwen2.5-omni-7b", "--gpus", "16"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([*PLAN, "--workload", "zero.yaml"], "is larger than 16 MiB"),
        ([*PLAN, "--workload", "zero.jsonl"], "zero.jsonl line 1: is longer than 1 MiB"),
        ([*PLAN, "--profile", "zero.yaml"], "is larger than 16 MiB"),
        ([*PLAN, "--gpu-types", "zero.yaml"], "is larger than 16 MiB"),
        (["plan", "zero.yaml", "--gpus", "16"], "is larger than 16 MiB"),
        (["deploy", "zero.py"], "has more than 16 MiB"),
        (["try", "zero.py", "{}", "--answers", "{}"], "has more than 16 MiB"),
        (["invoke", "a", "@zero.json"], "has more than 1 MiB"),
    ],
)
def test_a_file_without_an_end_is_refused(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], reason: str
) -> None:
    monkeypatch.setattr("cornserve.cli.json_argument.MAX_MIB", 1)
    monkeypatch.chdir(tmp_path)
    for suffix in ("yaml", "jsonl", "py", "json"):
        (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")

    result = cli.invoke(app, command)

    assert result.exit_code == 1
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1
