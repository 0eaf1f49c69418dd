"""Starts, pins, measures and ends the processes of a benchmark."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

STOP_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class CoreAssignment:
    """The cores of the gateway and those of all other processes. Empty sets disable pinning."""

    gateway: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()

    @classmethod
    def split(cls) -> CoreAssignment:
        """Assigns the last core to the gateway, because interrupts prefer the first. A single core is not split."""
        *others, last = sorted(os.sched_getaffinity(0))
        return cls(frozenset({last}), frozenset(others)) if others else cls()

    def __str__(self) -> str:
        if not self.gateway:
            return "not pinned"
        rest = "one" if len(self.others) == 1 else f"{len(self.others)}"
        return f"gateway alone on one core, everything else on the other {rest}"


@contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Pins processes that are started within the block, with all their threads."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running_process(
    command: Sequence[str],
    log: Path,
    cores: frozenset[int] = frozenset(),
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process that ends with the block. It also ends with this process, which holds its standard input.

    Args:
        directory: its working directory.
        environment: its variables, by default those of this process.
    """
    with log.open("ab") as output, pinned(cores):
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdin is not None
    process.stdin.close()


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of all threads, including ended ones. /proc has it in steps of 10 ms."""
    clock = (~pid << 3) | 2  # clock_getcpuclockid(pid)
    return time.clock_gettime(clock)


def machine_cpu_seconds() -> float:
    """Returns the CPU time of all processes of the machine, including time that its host has stolen."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def resident_mib(pid: int) -> float:
    return round(psutil.Process(pid).memory_info().rss / 2**20, 1)
