"""The filter for system calls, on kernels whose Landlock does not restrict signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sandbox import require_sandbox

FILTERED = """
import ctypes, fcntl, os, signal, subprocess, sys, threading
from cornserve.app_host.syscall_filter import filter_syscalls
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
parent, pid = os.getppid(), os.getpid()
filter_syscalls(landlock=1)
reader, _ = os.pipe()
try:
    print(eval(sys.argv[1]))
except PermissionError:
    print("refused")
child.stdin.close()
"""


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("os.kill(parent, 0)", "refused"),
        ("os.kill(-1, 0)", "refused"),
        ("os.kill(child.pid, 0)", "refused"),
        ("signal.pidfd_send_signal(os.pidfd_open(parent), 0)", "refused"),
        ("fcntl.fcntl(reader, fcntl.F_SETOWN, parent)", "refused"),
        (
            "[ctypes.CDLL(None).syscall(call, parent, parent, 0, 0) for call in (129, 200, 234, 297)]",
            "[-1, -1, -1, -1]",
        ),
        ("os.truncate('/dev/null', 0)", "refused"),
        ("os.kill(pid, 0)", "None"),
        ("os.killpg(0, 0)", "None"),
        ("signal.pthread_kill(threading.get_ident(), 0)", "None"),
        ("fcntl.fcntl(reader, fcntl.F_GETFD)", "1"),
        ("subprocess.run(['true']).returncode", "0"),
    ],
)
def test_signals_reach_only_the_process_itself(code: str, outcome: str) -> None:
    require_sandbox()

    filtered = subprocess.run([sys.executable, "-c", FILTERED, code], capture_output=True, text=True, check=True)

    assert filtered.stdout == f"{outcome}\n"
