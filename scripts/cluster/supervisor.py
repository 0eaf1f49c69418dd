"""The first process of a machine: mounts its directories, then keeps its processes running.

`python -m scripts.cluster.supervisor DIRECTORY` reads `machine.json`: `mounts` (commands) and `processes` (commands by
name). A process that ends is started again after a second. One with a file `NAME.stopped` is killed and stays stopped.
When the supervisor is killed, the kernel kills all processes of the machine, also those in its containers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_RESTART_SECONDS: Final = 1
_POLL_SECONDS: Final = 0.1


class Supervisor:
    """The processes of one machine."""

    def __init__(self, directory: Path, commands: dict[str, list[str]]) -> None:
        self._directory: Final = directory
        self._commands: Final = commands
        self._pids: Final[dict[str, int]] = {}
        self._not_before: Final[dict[str, float]] = {}

    def run(self) -> None:
        """Runs until it is killed."""
        while True:
            for name in self._commands:
                self._start_or_stop(name)
            self._reap()
            time.sleep(_POLL_SECONDS)

    def _start_or_stop(self, name: str) -> None:
        pid = self._pids.get(name)
        stopped = (self._directory / f"{name}.stopped").exists()
        if stopped and pid is not None:
            os.kill(pid, signal.SIGKILL)
        elif not stopped and pid is None and time.monotonic() >= self._not_before.get(name, 0):
            with (self._directory / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(self._commands[name], cwd=self._directory, stdout=log, stderr=log)
            process.returncode = 0  # `_reap` waits for it, not subprocess
            self._pids[name] = process.pid

    def _reap(self) -> None:
        """Collects the processes that have ended, also orphans of containers."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, running in self._pids.items() if running == pid]:
                print(f"{name} ended with exit status {os.waitstatus_to_exitcode(status)}", flush=True)
                del self._pids[name]
                self._not_before[name] = time.monotonic() + _RESTART_SECONDS


def main(directory: Path) -> None:
    machine = json.loads((directory / "machine.json").read_text())
    for command in machine["mounts"]:
        subprocess.run(command, check=True)
    Supervisor(directory, machine["processes"]).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
