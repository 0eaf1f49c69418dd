"""The memory of the processes of a replica."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from cornserve.profiler.device import process_memory

MIB = 1 << 20
SLAB = 64 * MIB


MAP = """
import mmap, sys

path, access = sys.argv[1:]
if access:
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=getattr(mmap, access))
    sum(mapped[offset] for offset in range(0, len(mapped), 4096))
print("mapped", flush=True)
sys.stdin.read()
"""


def memory_of_a_process(access: str = "") -> int:
    """Returns the memory of a process that has mapped a slab, with all its pages in memory."""
    with TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "cornserve-test.slab"
        path.write_bytes(bytes(SLAB))
        command = [sys.executable, "-c", MAP, str(path), access]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "mapped\n"
            found = process_memory(process.pid)
    assert found is not None
    return found.peak


def test_the_own_slab_counts_and_those_of_other_executors_do_not() -> None:
    without = memory_of_a_process()

    assert memory_of_a_process("ACCESS_READ") < without + SLAB / 4
    assert memory_of_a_process("ACCESS_WRITE") > without + SLAB * 3 / 4


def test_the_peak_remains_when_a_process_has_ended() -> None:
    before = process_memory(os.getpid())
    assert process_memory(2**22 + 1, before) == before
