"""Forks executors after it has imported their engine: `python -m cornserve_executors.base.warm_process SOCKET ENGINE`.

The launcher of one machine starts it. It writes "imported" to the descriptor SOCKET after it has called ENGINE, a
function `module:function`, and reads requests until the launcher closes the socket. Each request has a command and
variables, and two descriptors: a pipe and a log. The reply is the id of the process that waits to run the command.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import uvloop  # noqa: F401 - for executors, like the server

from cornserve.parent_death import signal_on_parent_death
from cornserve.task.spec import installed_executors
from cornserve_executors.base import server  # noqa: F401
from cornserve_executors.base.command_line import show_command

MAX_REQUEST_BYTES = 1 << 18


class UnsafeForkError(Exception):
    """Forks of this process could fail or hang."""


@dataclass(frozen=True, slots=True)
class ForkedExecutor:
    """A process that becomes an executor."""

    command: list[str]
    variables: dict[str, str]
    log: int

    def run(self) -> None:
        """Runs the command. Returns or exits as the executor does."""
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (self.log, 1), (self.log, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(self.log)
        os.environ.update(self.variables)
        show_command(self.command, self.variables)
        _renew_random_state()
        module = self.command.index("-m") + 1
        sys.orig_argv = self.command
        sys.argv = self.command[module:]
        runpy.run_module(self.command[module], run_name="__main__", alter_sys=True)


def _renew_random_state() -> None:
    """Replaces random state that all executors would inherit. Python's own is replaced in each fork."""
    multiprocessing.current_process().authkey = os.urandom(32)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


class LauncherRequests:
    """Serves the launcher, in a process with one thread."""

    def __init__(self, launcher: socket.socket) -> None:
        self._launcher = launcher

    def serve(self) -> ForkedExecutor | None:
        """Serves until the launcher ends, and returns None. Returns in each forked process after it is released."""
        while True:
            request, descriptors, _, _ = socket.recv_fds(self._launcher, MAX_REQUEST_BYTES, 2)
            if not request:
                return None
            fields = json.loads(request)
            go, log = descriptors
            forked = self._fork(go)
            if forked:
                self._launcher.close()
                return ForkedExecutor(fields["command"], fields["variables"], log)
            os.close(go)
            os.close(log)

    def _fork(self, go: int) -> bool:
        """Forks twice, so that the launcher, which is a subreaper, becomes the parent. Returns True in the executor."""
        readable, writable = os.pipe()
        parent = os.fork()
        if not parent:
            if os.fork():
                os._exit(0)
            os.setsid()
            os.close(readable)
            os.write(writable, str(os.getpid()).encode())
            os.close(writable)
            if not os.read(go, 16):
                os._exit(0)  # The launcher has died.
            os.close(go)
            return True
        os.waitpid(parent, 0)
        os.close(writable)
        self._launcher.send(os.read(readable, 16))
        os.close(readable)
        return False


def import_engine(engine: str) -> None:
    """Calls the function that imports the engine, and restores the environment. Raises `UnsafeForkError`."""
    installed_executors()  # Executors would each read the metadata of all packages.
    environment = dict(os.environ)
    EntryPoint("", engine, "").load()()
    for name in os.environ.keys() - environment:
        del os.environ[name]
    os.environ.update(environment)
    _fork_nothing()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise UnsafeForkError(f"{engine} has started {threads - 1} threads, which do not survive a fork")
    if "/dev/shm/" in Path("/proc/self/maps").read_text():
        raise UnsafeForkError(f"{engine} has created shared memory, such as locks, which executors must not share")
    gc.collect()
    gc.freeze()  # The garbage collector would write to the memory that the processes share.


def _fork_nothing() -> None:
    """Ends the threads of OpenBLAS, which numpy starts while it is imported. They end before a fork, until their next
    use."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    signal_on_parent_death(signal.SIGKILL)
    launcher = socket.socket(fileno=int(sys.argv[1]))
    show_command(sys.orig_argv, {})  # Fails on systems on which executors could not show their commands.
    import_engine(sys.argv[2])
    launcher.send(b"imported")
    executor = LauncherRequests(launcher).serve()
    if executor is None:
        os._exit(0)
    executor.run()


if __name__ == "__main__":
    main()
