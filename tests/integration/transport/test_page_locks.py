"""Steps of segments are locked once for a GPU, until they are unmapped. A list of calls takes the place of CUDA."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from cornserve.transport import Location, SegmentReader, StepRegistrations
from cornserve.transport.memory.segment import FIRST_STEP_PAGES, PAGE, STEP_PAGES, TOKEN_BYTES
from cornserve.transport.memory.slab import Slab

PAGES = FIRST_STEP_PAGES + 2 * STEP_PAGES


class RecordedCuda:
    """Records calls, and checks that locked memory is mapped."""

    def __init__(self, error: str | None = None) -> None:
        from cornserve_executors.page_locks import FAILURE

        self.locked: dict[int, tuple[int, bool]] = {}
        """Size in bytes of the locked memory, and whether it is read-only, by address."""
        self.calls = 0
        self._error = error
        self.locks = StepRegistrations(self.register, FAILURE)

    def register(self, address: int, nbytes: int, is_readonly: bool) -> Callable[[], None]:
        self.calls += 1
        if self._error is not None:
            raise RuntimeError(self._error)
        assert mapped_bytes(address) >= nbytes
        self.locked[address] = (nbytes, is_readonly)
        return partial(self.unregister, address)

    def unregister(self, address: int) -> None:
        nbytes, _ = self.locked.pop(address)
        assert mapped_bytes(address) >= nbytes


def mapped_bytes(address: int) -> int:
    """Returns how much memory of this process is mapped from an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if start <= address < end:
            return end - address
    return 0


@pytest.fixture
async def slab(tmp_path: Path) -> AsyncIterator[Slab]:
    slab = Slab(tmp_path, bytes(range(TOKEN_BYTES)), PAGES * PAGE)
    await slab.create()
    yield slab
    await slab.remove()


def step_bytes(slab: Slab, step: int) -> int:
    return len(slab.layout.step_pages(step)) * PAGE


def location_of(slab: Slab, nbytes: int) -> Location:
    return Location(slab.mapping.path, slab.mapping.layout.data, nbytes, slab.assign_generation(0))


def buffer_of(slab: Slab, nbytes: int) -> memoryview:
    """Returns the writable memory of a tensor, as a slot does."""
    return memoryview(slab.writable(slab.mapping.layout.data, nbytes)).cast("B")


async def test_the_steps_of_this_process_and_of_a_peer_are_locked_once(slab: Slab) -> None:
    cuda, reader = RecordedCuda(), SegmentReader()
    view = reader.view(location_of(slab, 100))

    for buffer in (buffer_of(slab, 100), buffer_of(slab, 9), buffer_of(slab, 9)[1:], view, view[:4]):
        assert cuda.locks.register(buffer) == [buffer]

    first = step_bytes(slab, 0)
    assert list(cuda.locked.values()) == [(first, False), (first, True)]
    assert cuda.calls == 2


async def test_a_buffer_in_several_steps_is_divided_where_they_begin(slab: Slab) -> None:
    cuda = RecordedCuda()
    await slab.take(1, lambda pages: None)
    buffer = buffer_of(slab, step_bytes(slab, 0) + 10)
    buffer[-10:] = b"0123456789"

    parts = cuda.locks.register(buffer)

    assert [part.nbytes for part in parts] == [step_bytes(slab, 0), 10]
    assert bytes(parts[1]) == b"0123456789"
    assert [nbytes for nbytes, _ in cuda.locked.values()] == [step_bytes(slab, 0), step_bytes(slab, 1)]


@pytest.mark.parametrize("process", ["its own process", "a peer"])
async def test_a_locked_step_is_never_given_back(slab: Slab, process: str) -> None:
    cuda, reader = RecordedCuda(), SegmentReader()
    await slab.take(1, lambda pages: None)
    offset = slab.layout.step_bytes(1).start
    location = Location(slab.mapping.path, offset, 100, slab.assign_generation(slab.layout.page_at(offset)))
    view = reader.view(location) if process == "a peer" else memoryview(slab.writable(offset, 100)).cast("B")
    cuda.locks.register(view)

    assert not await slab.give_back(1)

    del view, reader
    gc.collect()
    has_unmapped = process == "a peer"
    assert await slab.give_back(1) == has_unmapped


async def test_a_segment_is_unlocked_when_the_last_view_of_it_is_gone(slab: Slab) -> None:
    cuda, reader = RecordedCuda(), SegmentReader()
    view = reader.view(location_of(slab, 100))
    cuda.locks.register(view)

    del reader
    gc.collect()
    assert len(cuda.locked) == 1
    del view
    gc.collect()

    assert not cuda.locked


async def test_other_memory_is_not_locked() -> None:
    cuda = RecordedCuda()

    cuda.locks.register(memoryview(bytearray(4096)))

    assert cuda.calls == 0


async def test_failures_are_logged_once_and_not_repeated(slab: Slab, caplog: pytest.LogCaptureFixture) -> None:
    cuda, reader = RecordedCuda(error="operation not supported (801)"), SegmentReader()
    view = reader.view(location_of(slab, 100))

    with caplog.at_level(logging.WARNING, "cornserve.transport.memory.step_registrations"):
        for buffer in (view, buffer_of(slab, 9), view, buffer_of(slab, 9)):
            cuda.locks.register(buffer)

    assert cuda.calls == 2
    (record,) = caplog.records
    assert record.getMessage().endswith("copies of tensors are slower: operation not supported (801)")
