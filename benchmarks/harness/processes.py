"""Processes of a benchmark: which cores they may use, what they have used, and that they end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Which cores the gateway has to itself, and which everything else shares. Empty: as the system likes."""

    gateway: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()

    @classmethod
    def divided(cls) -> Cores:
        """The gateway's is the last one: interrupts prefer the first. A single core cannot be divided."""
        *others, last = sorted(os.sched_getaffinity(0))
        return cls(frozenset({last}), frozenset(others)) if others else cls()

    def __str__(self) -> str:
        if not self.gateway:
            return "not pinned"
        rest = "one" if len(self.others) == 1 else f"{len(self.others)}"
        return f"gateway alone on one core, everything else on the other {rest}"


@contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """What is started inside runs on these cores, with all threads it will ever have."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(
    command: Sequence[str], log: Path, cores: frozenset[int] = frozenset()
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, or with us: its standard input is a pipe that only we hold."""
    with log.open("ab") as output, pinned(cores):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdin is not None
    process.stdin.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads, also of those that have ended; in steps of 10 ms."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def machine_cpu_seconds() -> float:
    """What all processes of the machine have used; and what its host has withheld."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def resident_mib(pid: int) -> float:
    return round(psutil.Process(pid).memory_info().rss / 2**20, 1)
