"""The memory of the processes of a replica."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, ACCESS_WRITE, mmap
from pathlib import Path
from tempfile import TemporaryDirectory

from cornserve.profiler.device import process_memory

MIB = 1 << 20
SLAB = 64 * MIB


@contextmanager
def mapped_slab(access: int) -> Iterator[None]:
    """Maps a slab in shared memory, with all its pages in memory."""
    with TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "cornserve-test.slab"
        path.write_bytes(bytes(SLAB))
        with path.open("r+b") as file, mmap(file.fileno(), SLAB, access=access) as mapped:
            assert sum(mapped[offset] for offset in range(0, SLAB, 4096)) == 0
            yield


def own_memory() -> int:
    found = process_memory(os.getpid())
    assert found is not None
    return found.peak


def test_the_own_slab_counts_and_those_of_other_executors_do_not() -> None:
    before = own_memory()
    with mapped_slab(ACCESS_READ):
        assert own_memory() < before + SLAB / 4
    with mapped_slab(ACCESS_WRITE):
        assert own_memory() > before + SLAB * 3 / 4


def test_the_peak_remains_when_a_process_has_ended() -> None:
    before = process_memory(os.getpid())
    assert process_memory(2**22 + 1, before) == before
