"""Commands of the cluster and their errors."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from scripts.cluster.machines import STATE


class LocalClusterError(Exception):
    """The cluster cannot be set up or used; the message contains the reason and the remedy."""


def run(*command: str | Path, stdin: str = "") -> str:
    """Runs a command and returns its output. Raises `LocalClusterError` with the end of its standard error."""
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if result.returncode:
        raise LocalClusterError(
            f"`{' '.join(map(str, command))}` failed: {(result.stderr or result.stdout)[-1000:].strip()}"
        )
    return result.stdout


def succeeds(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Returns when the condition holds. Raises `LocalClusterError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{what} did not happen within {seconds:.0f} s. Logs: {STATE}/*/*.log")
        time.sleep(0.05)
