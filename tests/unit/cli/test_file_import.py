"""Files of apps that hang, exit or crash when commands import them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from cornserve.cli.console import CliError
from cornserve.cli.file_import import run_import
from cornserve_planner.model.document import ModelDocument

COMMANDS = [
    ("deploy", "FILE"),
    ("plan", "from", "FILE"),
    ("try", "FILE", "{}", "--answers", "{}"),
]

CAPTIONS = """
from cornserve_echo.stages import caption_app

app = caption_app(name="captions", encoder=0.1, llm=0.3)
"""

FORKS = """
import os
import select

reader = os.open("FIFO", os.O_RDONLY | os.O_NONBLOCK)
if os.fork() == 0:
    waiting = select.poll()
    waiting.register(reader, select.POLLHUP)
    waiting.poll(30_000)
os._exit(3)
"""


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
        "error: the import of hangs.py has not ended after 0.2 s: give a longer --timeout"
    )


def test_any_error_after_the_import_is_one_line() -> None:
    def fail() -> None:
        raise ValueError("first\nsecond")

    with pytest.raises(CliError, match=r"^the import of fails\.py fails: ValueError: first second$"):
        run_import("fails.py", fail)


def test_a_process_that_the_file_forks_does_not_delay_the_error(cli: CliRunner, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    (file := tmp_path / "forks.py").write_text(FORKS.replace("FIFO", str(fifo)))

    result = cli.invoke(app, ["plan", "from", str(file)])

    assert result.stderr == (
        "error: the import of forks.py ends its process: exit status 3: remove the call that exits, such as os._exit\n"
    )
    ends_the_fork = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)  # Fails if the fork has ended before.
    os.close(ends_the_fork)


def test_prints_of_a_file_do_not_become_part_of_the_model(tmp_path: Path) -> None:
    (file := tmp_path / "prints.py").write_text(f"{CAPTIONS}\nprint('imported')\n")

    with cornserve("plan", "from", str(file)) as command:
        output, errors = command.communicate()

    assert ModelDocument.parse(output, source="model.yaml").name == "captions"
    assert "imported\n" in errors


def test_an_import_ends_together_with_the_command(tmp_path: Path) -> None:
    (file := tmp_path / "hangs.py").write_text("import time\n\nprint('hangs', flush=True)\ntime.sleep(60)\n")

    with cornserve("plan", "from", str(file)) as command:
        assert command.stderr is not None
        assert "hangs\n" in iter(command.stderr.readline, "")
        command.terminate()
        command.communicate(timeout=20)  # Standard error ends when no process can write to it.

    assert command.returncode == -signal.SIGTERM


def cornserve(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cornserve.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
