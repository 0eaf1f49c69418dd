"""A process that becomes an executor once it is released."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, BinaryIO, Self

from cornserve.control.launcher.local.warm_process import WarmProcess

_WAIT_SCRIPT = 'read -r go && exec "$@" </dev/null'


class WaitingProcess:
    """Waits for a line in a pipe. If the launcher dies first, the pipe ends, and the process exits.

    Args:
        go: the end of the pipe to which the launcher writes.
    """

    def __init__(self, pid: int, go: IO[bytes]) -> None:
        self.pid = pid
        self._go = go

    @classmethod
    def start(cls, command: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> Self:
        """Starts a shell, which executes the command."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT_SCRIPT, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        process.returncode = 0  # `ProcessGroup` reaps the process. Without this, Popen warns that it still runs.
        assert process.stdin is not None
        return cls(process.pid, process.stdin)

    @classmethod
    def fork(cls, warm: WarmProcess, command: Sequence[str], variables: Mapping[str, str], log: BinaryIO) -> Self:
        """Forks a process that runs the command with the warm process's imports. Raises `WarmProcessError`."""
        waiting, go = os.pipe()
        try:
            pid = warm.fork(command, variables, [waiting, log.fileno()])
        except BaseException:
            os.close(go)
            raise
        finally:
            os.close(waiting)
        return cls(pid, open(go, "wb"))

    def release(self) -> None:
        with self._go:
            self._go.write(b"go\n")

    def kill(self) -> None:
        """Kills the process before it has been released."""
        self._go.close()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
