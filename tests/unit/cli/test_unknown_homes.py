"""Paths with `~` of a user that does not exist, and with a NUL character."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app

COMMANDS = [
    ("invoke", "a", "@PATH"),
    ("chat", "a", "hello", "--image", "PATH"),
    ("deploy", "PATH.py"),
    ("try", "PATH.py", "{}", "--answers", "{}"),
]

COMMANDS_WITH_CHECKED_PATHS = [
    ("chat", "a", "hello", "--save", "PATH.png"),
    ("imagine", "a", "corn", "--save", "PATH.png"),
    ("imagine", "a", "corn", "--save", "corn.png", "--image", "PATH"),
    ("speak", "a", "hello", "--save", "PATH.wav"),
    ("transcribe", "a", "PATH"),
    ("bench", "a", "--request", "PATH"),
    ("down", "--home", "PATH"),
    ("demo", "--save", "PATH"),
    ("plan", "qwen2.5-omni-7b", "--gpus", "16", "--save", "PATH"),
    ("plan", "adapt", "plan.json", "--rate", "1", "--save", "PATH"),
    ("plan", "qwen2.5-omni-7b", "--gpus", "16", "--plot", "PATH.png"),
    ("plan", "qwen2.5-omni-7b", "--gpus", "16", "--save", "PATH", "--plot", "PATH.png"),
]
"""The type of these arguments refuses a NUL character."""


@pytest.mark.parametrize("command", COMMANDS + COMMANDS_WITH_CHECKED_PATHS, ids=" ".join)
def test_a_home_of_an_unknown_user_is_one_line(cli: CliRunner, command: tuple[str, ...]) -> None:
    result = cli.invoke(app, [argument.replace("PATH", "~nobody-of-this-name/file") for argument in command])

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "~nobody-of-this-name/file" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_path_with_a_nul_is_one_line(cli: CliRunner, command: tuple[str, ...]) -> None:
    result = cli.invoke(app, [argument.replace("PATH", "nul\0") for argument in command])

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
