"""Files of apps that hang, exit or crash when commands import them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app

COMMANDS = [
    ("deploy", "FILE"),
    ("plan", "from", "FILE"),
    ("try", "FILE", "{}", "--answers", "{}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os._exit(3)", "exit status 3: remove the call that exits, such as os._exit"),
        ("os.kill(os.getpid(), 9)", "signal SIGKILL"),
    ],
)
def test_a_file_that_ends_its_process_is_reported(
    cli: CliRunner, tmp_path: Path, command: tuple[str, ...], code: str, reason: str
) -> None:
    (file := tmp_path / "ends.py").write_text(f"import os\n\n{code}\n")

    result = cli.invoke(app, [argument.replace("FILE", str(file)) for argument in command])

    assert result.exit_code == 1
    assert result.stderr == f"error: the import of ends.py ends its process: {reason}\n"


def test_the_timeout_of_a_deployment_includes_the_import(cli: CliRunner, tmp_path: Path) -> None:
    (file := tmp_path / "hangs.py").write_text("while True:\n    pass\n")

    result = cli.invoke(app, ["deploy", str(file), "--timeout", "0.2"])

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "error: the import of hangs.py takes longer than 0.2 s: give a longer --timeout"
    )
