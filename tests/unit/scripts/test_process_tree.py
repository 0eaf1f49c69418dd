"""CPU time and memory of a process tree, read from /proc."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scripts.process_tree import MemoryPeak, ProcessTable

MIB = 2**20

ENDED = "if os.fork() == 0:\n    burn()\n    os._exit(0)\nos.wait()"
LIVING = "if os.fork() == 0:\n    burn()\n    say()\n    os.read(0, 1)\n    os._exit(0)\nos.read(0, 1)"
SHARING = """
memory = mmap.mmap(-1, 100 * 2**20)
memory.write(bytes(100 * 2**20))
ready, done = os.pipe()
if os.fork() == 0:
    memory[::4096]
    os.write(done, b".")
    os.read(0, 1)
    os._exit(0)
os.read(ready, 1)"""


@contextmanager
def process(code: str) -> Iterator[int]:
    """Runs Python code until it prints a line, and ends it and its children after the block."""
    functions = "def burn():\n    while time.process_time() < 0.5: pass\ndef say(): os.write(1, b'\\n')\n"
    command = [sys.executable, "-c", f"import mmap, os, time\n{functions}{code}\nsay()\nos.read(0, 1)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid


@pytest.mark.parametrize("code", [ENDED, LIVING], ids=["ended", "living"])
def test_the_cpu_time_includes_that_of_children(code: str) -> None:
    with process(code) as pid:
        assert 0.4 <= ProcessTable().cpu_seconds(pid) < 2  # The system counts in units of 0.01 s.


def test_memory_that_processes_share_counts_once() -> None:
    with process(SHARING) as pid:
        memory = ProcessTable().memory(pid)

    assert 100 * MIB <= memory.total < 150 * MIB


def test_a_process_that_has_ended_has_no_costs() -> None:
    with process("") as pid:
        pass

    table = ProcessTable()

    assert table.tree(pid) == []
    assert table.cpu_seconds(pid) == 0
    assert table.memory(pid).total == 0


def test_the_peak_includes_memory_that_has_been_freed_since() -> None:
    peak, memory = MemoryPeak(), mmap.mmap(-1, 50 * MIB)
    memory.write(bytes(50 * MIB))

    peak.sample(ProcessTable(), os.getpid())
    memory.close()
    peak.sample(ProcessTable(), os.getpid())

    assert peak.memory.total > ProcessTable().memory(os.getpid()).total + 40 * MIB
