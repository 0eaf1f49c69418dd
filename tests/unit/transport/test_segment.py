"""The segment file, and its removal after its owner has died."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from cornserve.transport import Location, SegmentReader, SegmentWriter, SlabError, StaleError, reap
from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import FIRST_STEP_PAGES, PAGE, STEP_PAGES, TOKEN_BYTES, SegmentLayout
from cornserve.transport.memory.slab import Slab

TOKEN = bytes(range(TOKEN_BYTES))

OWNER = """
import sys, time
from pathlib import Path
from cornserve.transport.memory import segment
mapping, descriptor = segment.create(Path(sys.argv[1]), bytes(range(16)), 4)
print("created", flush=True)
sys.stdin.read()
"""

CHILD = """
import sys
from cornserve.transport import Location, SegmentReader
location = Location(sys.argv[1], int(sys.argv[2]), 4096, int(sys.argv[3]))
sys.stdout.buffer.write(SegmentReader().view(location))
"""
"""Reads a page of its parent's segment, as an engine process does."""


def test_a_segment_is_identified_by_its_token(tmp_path: Path) -> None:
    mapping, descriptor = segment.create(tmp_path, TOKEN, 3)
    path = tmp_path / segment.file_name(TOKEN)
    mapping.memory[mapping.layout.data :] = b"x" * 3 * PAGE

    shared = segment.open_shared(path, TOKEN)

    assert shared is not None
    assert bytes(shared.view(shared.layout.data, 3 * PAGE)) == b"x" * 3 * PAGE
    assert shared.bytes.readonly
    assert segment.open_shared(path, TOKEN[::-1]) is None
    assert segment.open_shared(tmp_path / "nothing.slab", TOKEN) is None
    os.close(descriptor)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"CORNSLB3" + TOKEN + bytes(32), b"x" * 2 * PAGE])
def test_other_files_are_not_segments(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / segment.file_name(TOKEN)
    path.write_bytes(content)

    assert segment.open_shared(path, TOKEN) is None


def test_a_truncated_segment_is_refused(tmp_path: Path) -> None:
    _, descriptor = segment.create(tmp_path, TOKEN, 3)
    path = tmp_path / segment.file_name(TOKEN)
    os.truncate(path, SegmentLayout(3).nbytes - 1)

    assert segment.open_shared(path, TOKEN) is None
    os.close(descriptor)


def test_the_data_begins_at_a_page_after_the_generation_table() -> None:
    for pages in (1, 511, 512, 513, 100_000):
        layout = SegmentLayout(pages)
        assert layout.data % PAGE == 0
        assert layout.table.stop - layout.table.start == 8 * pages
        assert layout.table.stop <= layout.data
        assert layout.page_at(layout.data + (pages - 1) * PAGE) == pages - 1


def test_only_segments_of_dead_processes_are_reaped(tmp_path: Path) -> None:
    other = tmp_path / "cornserve.log"
    other.touch()
    path = tmp_path / segment.file_name(TOKEN)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"created\n"
        assert reap(tmp_path) == []
        owner.kill()
    assert path.exists()

    assert reap(tmp_path) == [path]

    assert list(tmp_path.iterdir()) == [other]


async def test_a_slab_that_cannot_be_shared_is_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    slab = Slab(tmp_path / "no" / "where", TOKEN, PAGE)
    await slab.create()
    location = Location(slab.mapping.path, slab.mapping.layout.data, PAGE, slab.assign_generation(0))
    slab.writable(location.offset, PAGE)[:] = b"x" * PAGE

    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, location.path, str(location.offset), str(location.generation)), stdout=PIPE
    )
    output, _ = await child.communicate()

    assert slab.is_private
    assert "no/where: No such file or directory: other processes pull" in caplog.text
    assert output == b"x" * PAGE
    await slab.remove()


def test_a_slab_that_does_not_fit_into_memory_reports_it_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "available_memory_bytes", lambda: 0)

    with pytest.raises(SlabError, match="cannot create a slab: Cannot allocate memory"):
        asyncio.run(Slab(tmp_path, TOKEN, PAGE).create())

    assert list(tmp_path.iterdir()) == []


def test_steps_divide_the_pages() -> None:
    for count in (1, FIRST_STEP_PAGES, FIRST_STEP_PAGES + 1, FIRST_STEP_PAGES + 3 * STEP_PAGES + 7):
        layout = SegmentLayout(count)
        steps = [layout.step_pages(step) for step in range(layout.steps)]
        assert [page for pages in steps for page in pages] == list(range(count))
        assert all(layout.step_of(page) == step for step, pages in enumerate(steps) for page in (pages[0], pages[-1]))


def test_a_location_in_a_removed_segment_is_stale(tmp_path: Path) -> None:
    with pytest.raises(StaleError, match="is gone"):
        SegmentReader().view(Location(str(tmp_path / "gone.slab"), PAGE, 1, 1))


def test_a_mapped_segment_stays_readable_after_its_removal(tmp_path: Path) -> None:
    mapping, descriptor = segment.create(tmp_path, TOKEN, 1)
    mapping.generations[0] = 7
    path = tmp_path / segment.file_name(TOKEN)
    location = Location(str(path), mapping.layout.data, 10, 7)
    reader = SegmentReader()
    view = reader.view(location)

    path.unlink()
    os.close(descriptor)

    assert bytes(view) == bytes(10)
    reader.check(location)


def test_the_pages_of_lent_memory_are_set_up_before_the_first_write(tmp_path: Path) -> None:
    mapping, descriptor = segment.create(tmp_path, TOKEN, FIRST_STEP_PAGES)
    mapping.generations[0] = 7
    nbytes = FIRST_STEP_PAGES * PAGE
    content = b"x" * nbytes
    buffer = SegmentWriter().buffer(Location(mapping.path, mapping.layout.data, nbytes, 7))
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    buffer[:] = content

    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < FIRST_STEP_PAGES / 10
    os.close(descriptor)
