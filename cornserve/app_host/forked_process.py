"""Separates a process that runs an app's code from the fork server, and from all other processes."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

from cornserve.app_host.sandbox import Sandbox
from cornserve.parent_death import signal_on_parent_death

_OOM_SCORE = Path("/proc/self/oom_score_adj")
_OOM_SCORE_ADJUSTMENT: Final = 500
"""When memory is short, the system kills app hosts before executors and gateways."""

MAX_FILE_BYTES: Final = 64 << 20
"""Limit for the size of files that the app's code writes, including the log and shared memory."""

NICENESS: Final = 5
"""On a busy machine, gateways and executors come first."""


@dataclass(frozen=True, slots=True)
class ForkedProcess:
    """The state with which a forked process starts: limits, the sandbox, and descriptors."""

    server: int
    """The pid of the fork server."""
    memory_bytes: int
    """The limit of the process's private writable memory, including that which it inherits from the fork server."""
    sandbox: Sandbox
    connection: int
    activity: int
    stack_dumps: int

    def isolate(self) -> None:
        """Sets the limits of this process, and enters the sandbox. It dies together with the fork server."""
        signal_on_parent_death(signal.SIGKILL)
        if os.getppid() != self.server:
            os.kill(os.getpid(), signal.SIGKILL)
        os.setsid()
        _OOM_SCORE.write_text(str(max(_OOM_SCORE_ADJUSTMENT, int(_OOM_SCORE.read_text()))))
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_DATA, self.memory_bytes)
        _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
        os.nice(NICENESS)
        self.sandbox.enter()
        self._report_stacks()
        _report_process_calls()

    def _report_stacks(self) -> None:
        """Writes the stack of the main thread to the file when the process crashes, and at each SIGUSR1."""
        faulthandler.enable(self.stack_dumps, all_threads=False)
        faulthandler.register(signal.SIGUSR1, self.stack_dumps, all_threads=False)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _report_process_calls() -> None:
    """Replaces calls that would end or duplicate the host by errors, so that the app's developer sees their line."""

    def exit_process(status: int) -> Never:
        raise SystemExit(status)

    def fork() -> Never:
        raise RuntimeError("an app's code cannot fork its process: run other programs in an executor")

    os._exit = exit_process
    os.fork = os.forkpty = fork
