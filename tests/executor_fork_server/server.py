"""Forks executors and engines from a process that has imported vLLM, which takes 15 s of CPU time in a new process.

python -m tests.executor_fork_server.server SOCKET: serves stand-ins (`stand_in/sitecustomize.py`) until standard input
ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing.spawn
import os
import re
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import traceback
from typing import NoReturn

from cornserve_executors import engine_imports
from cornserve_executors.base.warm_process import import_engine

PEER = struct.Struct("3i")
"""The process, user and group id of the process at the other end of a Unix socket."""

MAX_DESCRIPTORS = 64


class ExecutorForkServer:
    """Forks a process for each stand-in that connects, and reports its exit status."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """The process id and the stand-in of each process, by pidfd."""

    def run(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(self._listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    self._kill_all()
                    return
                if key.fileobj is self._listener:
                    selector.register(self._fork(), selectors.EVENT_READ)
                else:
                    selector.unregister(key.fileobj)
                    self._report_exit(key.fd)

    def _fork(self) -> int:
        """Forks a process in place of a stand-in. Returns its pidfd."""
        stand_in, _ = self._listener.accept()
        message, descriptors, _, _ = socket.recv_fds(stand_in, 1 << 20, MAX_DESCRIPTORS)
        process = os.fork()
        if not process:
            replace_stand_in(stand_in, descriptors, **json.loads(message))
        for descriptor in descriptors:
            os.close(descriptor)
        stand_in.sendall(process.to_bytes(4))
        pidfd = os.pidfd_open(process)
        self._running[pidfd] = process, stand_in
        return pidfd

    def _report_exit(self, pidfd: int) -> None:
        process, stand_in = self._running.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(process, 0)
        with stand_in, contextlib.suppress(BrokenPipeError):  # The stand-in was killed.
            stand_in.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))

    def _kill_all(self) -> None:
        for process, _ in self._running.values():
            os.killpg(process, signal.SIGKILL)


def replace_stand_in(
    stand_in: socket.socket,
    descriptors: list[int],
    numbers: list[int],
    command: list[str],
    environment: dict[str, str],
    directory: str,
) -> NoReturn:
    """Takes over the open files, the environment and the cores of a stand-in, and runs its command."""
    os.setsid()
    peer, _, _ = PEER.unpack(stand_in.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    os.sched_setaffinity(0, os.sched_getaffinity(peer))
    take_over_files(stand_in, descriptors, numbers)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment | {"OMP_NUM_THREADS": "1"})
    status: str | int | None = 0
    try:
        run(command)
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else status is not None)


def take_over_files(stand_in: socket.socket, descriptors: list[int], numbers: list[int]) -> None:
    """Gives the descriptors their numbers, and closes all others. Dies when the stand-in is killed."""
    first = max([*numbers, *descriptors, stand_in.fileno()]) + 1
    connection = socket.socket(fileno=fcntl.fcntl(stand_in, fcntl.F_DUPFD_CLOEXEC, first))
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, first) for descriptor in descriptors]
    os.closerange(3, first)
    for source, number in zip(moved, numbers, strict=True):
        os.dup2(source, number)
        os.close(source)
    threading.Thread(target=die_with_stand_in, args=[connection], daemon=True).start()


def die_with_stand_in(connection: socket.socket) -> None:
    connection.recv(1)
    os.killpg(0, signal.SIGKILL)


def run(command: list[str]) -> None:
    """Runs a module, or a process that multiprocessing starts."""
    _, code, *arguments = command
    sys.argv = [code, *arguments]
    if command[0] == "-c":
        numbers = re.findall(r"(\w+)=(\d+)", code)
        multiprocessing.spawn.spawn_main(**{name: int(number) for name, number in numbers})
    else:
        runpy.run_module(code, run_name="__main__", alter_sys=True)


def import_engines() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # OpenMP's threads do not survive a fork.
    for name in ("import_vllm", "import_transformers", "import_diffusers"):
        import_engine(f"{engine_imports.__name__}:{name}")


def main() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()  # The first stand-ins wait for the imports.
        import_engines()
        ExecutorForkServer(listener).run()


if __name__ == "__main__":
    main()
