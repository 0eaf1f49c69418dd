"""Lets the executor fork server fork an executor or an engine in place of this process, the *stand-in*.

Python imports this module when it starts, because its directory is in PYTHONPATH. The stand-in passes its open files,
its command and its environment on, forwards signals, and exits as the forked process does. The launcher's processes
with imported engines exit, so that it starts stand-ins.
"""

from __future__ import annotations

import os
import sys

MODULES = ("cornserve_executors.base", "tests.integration.llm.reference")
WARM_PROCESS = "cornserve_executors.base.warm_process"
ENGINE = "from multiprocessing.spawn import spawn_main"
"""The beginning of the code of processes that multiprocessing starts, such as engines of vLLM."""


def without_options(arguments: list[str]) -> list[str]:
    """Returns the arguments without options of the interpreter."""
    while arguments and arguments[0] in ("-P", "-B", "-u"):
        arguments = arguments[1:]
    return arguments


def forkable_command(arguments: list[str]) -> list[str] | None:
    """Returns the command without options of the interpreter, or none if the process is not forked."""
    match arguments := without_options(arguments):
        case ["-m", module, *_] if module in MODULES:
            return arguments
        case ["-c", code, *_] if code.startswith(ENGINE):
            return arguments
    return None


def run_forked(address: str, command: list[str]) -> None:
    """Waits for the forked process, and exits with its status. Other processes do not pay for these imports."""
    import json
    import signal
    import socket
    from contextlib import suppress

    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    numbers = _open_files(server.fileno())
    message = {
        "numbers": numbers,
        "command": command,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
    }
    socket.send_fds(server, [json.dumps(message).encode()], numbers)
    process = int.from_bytes(server.recv(4))

    def forward(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    _close(numbers)
    status = int.from_bytes(server.recv(4) or bytes([1]), signed=True)
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler.
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _open_files(server: int) -> list[int]:
    numbers = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            os.fstat(number)
        except OSError:  # the directory that was listed
            continue
        numbers.append(number)
    numbers.remove(server)
    return numbers


def _close(numbers: list[int]) -> None:
    """Closes the files, so that only the forked process holds them."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        if number > 2:
            os.close(number)
        else:
            os.dup2(null, number)


_command = forkable_command(sys.orig_argv[1:])
_address = os.environ.get("EXECUTOR_FORK_SERVER")
if _address and without_options(sys.orig_argv[1:])[:2] == ["-m", WARM_PROCESS]:
    os._exit(1)
if _address and _command:
    run_forked(_address, _command)
