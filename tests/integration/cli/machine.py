"""Cornserve as a user has it on a machine: a home, the command line, and what may be left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from cornserve.home import Home

COMMAND_SECONDS = 100


@dataclass(frozen=True, slots=True)
class Machine:
    home: Home

    @property
    def url(self) -> str:
        url: str = json.loads(self.home.instance.read_text())["url"]
        return url

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        pid: int = json.loads(self.home.instance.read_text())["pid"]
        return pid

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Output and errors come through pipes. At the end of the block it is killed, if it still runs."""
        with subprocess.Popen(
            [sys.executable, "-m", "cornserve.cli", *arguments],
            env=_environment(self.home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=COMMAND_SECONDS)
            return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def do(self, *arguments: str) -> str:
        """Standard output of a command that must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.do(*arguments, "--json"))

    def up(self, *options: str, cpu_slots: int = 4) -> None:
        self.do("up", "--detach", "--port", "0", "--cpu-slots", str(cpu_slots), *options)

    def processes(self, module: str | None = None) -> list[psutil.Process]:
        """What runs for this home, all of it or of one module: all of it has the home among its arguments."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # a zombie is none to psutil
                arguments = process.cmdline()
                ours = any(
                    argument == str(self.home.path) or argument.startswith(f"{self.home.path}/")
                    for argument in arguments
                )
                if ours and (module is None or module in arguments):
                    found.append(process)
        return found

    def kill_everything(self) -> None:
        """As if the power had failed."""
        for process in self.processes():
            process.send_signal(signal.SIGSTOP)  # so that none sees another die
        for process in self.processes():
            process.kill()
        psutil.wait_procs(self.processes(), timeout=20)


def _environment(home: Home) -> dict[str, str]:
    chosen = {"CORNSERVE_HOME": str(home.path), "COLUMNS": "200", "NO_COLOR": "1"}
    return {name: value for name, value in os.environ.items() if not name.startswith("CORNSERVE_")} | chosen


def write_app(
    folder: Path, name: str, *, prefix: str = "", start_seconds: float = 0, fail_start: str | None = None
) -> str:
    """The file of an app that repeats what it is told."""
    file = folder / f"{name}.py"
    file.write_text(f"""\
from cornserve import App
from cornserve_echo import EchoTask

app = App(name={name!r}, paths=[EchoTask(prefix={prefix!r}, start_seconds={start_seconds}, fail_start={fail_start!r})])
""")
    return str(file)
