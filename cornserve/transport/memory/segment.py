"""The shared-memory file of a producing process: a header, a table of generations, and pages of data.

The file is as large as the slab may become, but only some of its *steps* have memory. The owner takes memory for a
whole step before any page of it is used, and may give it back when no process can read it. The first step always has
memory.

The table holds one number for each page of data. It is separate from the data, so that no stored tensor can be mistaken
for a generation. The generation of a tensor is stored at its first page; 0 marks an unused page. It changes before the
pages are assigned to another tensor, and no number is used twice. A reader that finds the same number before and after
it copies has therefore copied a single tensor.

The owner keeps a lock (`flock`) on the file while it runs. Readers lock the bytes of the steps that they read (see
`StepHolds`). Unlike a process id, a lock means the same in all pods of a node. The header names the kernel that shares
the memory: a network file system may show the file on other nodes, too.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final
from uuid import UUID

from cornserve.libc import LIBC
from cornserve.memory_limit import available_memory_bytes
from cornserve.transport.errors import StaleError
from cornserve.transport.memory.step_holds import StepHolds, lock_exclusively

PAGE: Final = 4096
"""Alignment of tensors. Copies take three times as long if source and destination differ modulo 4 KiB."""

TOKEN_BYTES: Final = 16

FIRST_STEP_PAGES: Final = 1000
"""A tensor of 4 MB: an idle process holds no more, and needs no other memory for the first tensor after a pause."""

STEP_PAGES: Final = 4096
"""The pages of all other steps but the last: 16 MiB."""

_HEADER = struct.Struct(f"<8s{TOKEN_BYTES}s16sQQ")
_GENERATION = struct.Struct("Q")
_MAGIC = b"CORNSLB3"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GENERATION_BYTES = 8
_PATTERN = "cornserve-*.slab"

_MADV_POPULATE_READ: Final = 22
_MADV_POPULATE_WRITE: Final = 23
_POPULATE_PAGES: Final = 256
"""Pages that one call populates or frees. Some hold the interpreter's lock for about 0.1 milliseconds."""


@dataclass(frozen=True)
class SegmentLayout:
    """Offsets in a segment with `pages` pages of data."""

    pages: int

    @cached_property
    def table(self) -> slice:
        return slice(PAGE, PAGE + self.pages * _GENERATION_BYTES)

    @cached_property
    def data(self) -> int:
        return PAGE + pages_for(self.pages * _GENERATION_BYTES) * PAGE

    @cached_property
    def nbytes(self) -> int:
        return self.data + self.pages * PAGE

    @property
    def steps(self) -> int:
        return self.step_of(self.pages - 1) + 1

    def step_of(self, page: int) -> int:
        return 0 if page < FIRST_STEP_PAGES else 1 + (page - FIRST_STEP_PAGES) // STEP_PAGES

    def step_pages(self, step: int) -> range:
        first = 0 if step == 0 else FIRST_STEP_PAGES + (step - 1) * STEP_PAGES
        return range(first, min(self.pages, FIRST_STEP_PAGES + step * STEP_PAGES))

    def steps_of(self, offset: int, nbytes: int) -> range:
        """Returns the steps that contain bytes of data."""
        start = offset - self.data
        return range(self.step_of(start // PAGE), self.step_of((start + nbytes - 1) // PAGE) + 1)

    def step_bytes(self, step: int) -> slice:
        """Returns the position of a step in the file."""
        pages = self.step_pages(step)
        return slice(self.data + pages.start * PAGE, self.data + pages.stop * PAGE)

    def step_generations(self, step: int) -> slice:
        """Returns the position of a step's generations in the file."""
        pages = self.step_pages(step)
        return slice(PAGE + pages.start * _GENERATION_BYTES, PAGE + pages.stop * _GENERATION_BYTES)

    def contains(self, offset: int, nbytes: int) -> bool:
        """Returns whether a tensor may be at `offset` of the file."""
        is_page = offset >= self.data and (offset - self.data) % PAGE == 0
        return is_page and 0 < nbytes <= self.nbytes - offset

    def page_at(self, offset: int) -> int:
        """Returns the page of data that begins at `offset` of the file."""
        page, rest = divmod(offset - self.data, PAGE)
        if rest or not 0 <= page < self.pages:
            raise ValueError(f"no page of data begins at offset {offset}")
        return page


def pages_for(nbytes: int) -> int:
    return -(-nbytes // PAGE)


@cache
def _kernel_id() -> bytes:
    """Returns 16 bytes that all processes of this kernel share, in all of its containers, until it restarts."""
    return UUID(_BOOT_ID.read_text().strip()).bytes


def file_name(token: bytes) -> str:
    return f"cornserve-{token.hex()}.slab"


@dataclass(frozen=True, slots=True)
class Location:
    """The position of a tensor on this node, for a process that holds no lease on it."""

    path: str
    offset: int
    nbytes: int
    generation: int


class SegmentMemory(mmap.mmap):
    """The memory of a mapped segment. It stays mapped while any view of it exists."""

    layout: SegmentLayout
    holds: StepHolds
    """The steps that the owner must not give back, because this process may read them."""
    before_unmap: list[Callable[[], object]]
    """Called in any thread before the memory is unmapped."""

    @classmethod
    def map(cls, descriptor: int, layout: SegmentLayout, *, is_readonly: bool) -> SegmentMemory:
        access = mmap.PROT_READ if is_readonly else mmap.PROT_READ | mmap.PROT_WRITE
        memory = cls(descriptor, layout.nbytes, prot=access)
        memory.layout = layout
        memory.holds = StepHolds(descriptor)
        memory.before_unmap = []
        return memory

    def __del__(self) -> None:
        for function in self.before_unmap:
            function()


def memory_of(buffer: memoryview) -> SegmentMemory | None:
    """Returns the memory of the segment in which a tensor's buffer is, or None for other memory."""
    memory = getattr(buffer.obj, "segment_memory", buffer.obj)
    return memory if isinstance(memory, SegmentMemory) else None


class SegmentMapping:
    """A segment that is mapped into this process."""

    def __init__(self, path: Path, layout: SegmentLayout, memory: SegmentMemory) -> None:
        self.path = str(path)
        self.layout = layout
        self.memory = memory
        self.bytes = memoryview(memory)
        self.generations = self.bytes[layout.table].cast("Q")

    def view(self, offset: int, nbytes: int) -> memoryview:
        return self.bytes[offset : offset + nbytes].toreadonly()

    def has_generation(self, generation: int, offset: int) -> bool:
        """Returns whether the tensor at `offset` has this generation."""
        return self.generations[self.layout.page_at(offset)] == generation

    def check(self, location: Location) -> None:
        """Raises `StaleError` if the memory at `location` may belong to another tensor."""
        if not self.has_generation(location.generation, location.offset):
            raise StaleError(f"the tensor at offset {location.offset} of {location.path} has been freed")

    def hold(self, location: Location) -> list[int] | None:
        """Keeps the owner from giving back the memory of the tensor at `location`.

        Returns the steps that were not held before, or None if the tensor has been freed.
        """
        steps = self.layout.steps_of(location.offset, location.nbytes)
        added = [step for step in steps if self.memory.holds.add(step, self.layout.step_bytes(step))]
        # Reads the file, because memory that has been given back must not be touched.
        position = self.layout.table.start + self.layout.page_at(location.offset) * _GENERATION_BYTES
        if added and self.memory.holds.read(position, _GENERATION) != location.generation:
            self.drop(added)
            return None
        return added

    def drop(self, steps: Iterable[int]) -> None:
        """Lets the owner give back steps that this process does not read any more."""
        for step in steps:
            self.memory.holds.drop(step, self.layout.step_bytes(step))

    def populate(self, pages: range) -> None:
        """Lets the system set up pages that have memory, because the first touch of a page is slow. Blocks.

        Older systems cannot do this: they set pages up at the first touch.
        """
        for piece in pieces(pages):
            start, nbytes = self.layout.data + piece.start * PAGE, len(piece) * PAGE
            if self.bytes.readonly:
                with suppress(OSError, ValueError):
                    self.memory.madvise(_MADV_POPULATE_READ, start, nbytes)
            else:  # This clears the pages. A call by ctypes does not hold the interpreter's lock meanwhile.
                first = ctypes.c_char.from_buffer(self.memory, start)
                LIBC.madvise(ctypes.byref(first), ctypes.c_size_t(nbytes), _MADV_POPULATE_WRITE)


def pieces(pages: range) -> Iterator[range]:
    """Divides pages into parts that can be populated without a long interruption of other threads."""
    for start in range(pages.start, pages.stop, _POPULATE_PAGES):
        yield range(start, min(start + _POPULATE_PAGES, pages.stop))


def create(directory: Path, token: bytes, pages: int) -> tuple[SegmentMapping, int]:
    """Creates a segment whose first step has memory. Blocks.

    Returns the mapping and the descriptor of the locked file.
    """
    path = directory / file_name(token)
    with _locked_file(path) as descriptor:
        return _initialize(path, descriptor, token, SegmentLayout(pages)), descriptor


def create_private(token: bytes, pages: int) -> tuple[SegmentMapping, int]:
    """Creates a segment outside of all directories, whose first step has memory. Blocks.

    Only this process and its children can map it. Returns the mapping and the descriptor of the file.
    """
    descriptor = os.memfd_create(file_name(token))
    try:
        path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        return _initialize(path, descriptor, token, SegmentLayout(pages)), descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _initialize(path: Path, descriptor: int, token: bytes, layout: SegmentLayout) -> SegmentMapping:
    os.ftruncate(descriptor, layout.nbytes)
    os.posix_fallocate(descriptor, 0, PAGE)
    allocate_step(descriptor, layout, 0)
    mapping = SegmentMapping(path, layout, SegmentMemory.map(descriptor, layout, is_readonly=False))
    mapping.populate(layout.step_pages(0))
    mapping.memory[: _HEADER.size] = _HEADER.pack(_MAGIC, token, _kernel_id(), layout.pages, layout.data)
    return mapping


def allocate_step(descriptor: int, layout: SegmentLayout, step: int) -> None:
    """Takes memory for a step and its generations. Blocks.

    Raises:
        OSError: the file system or the memory is full. Without this call, the first touch would be a signal.
    """
    data, generations = layout.step_bytes(step), layout.step_generations(step)
    if data.stop - data.start > available_memory_bytes():
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))  # the system would kill a process to provide the memory
    for part in (generations, data):
        os.posix_fallocate(descriptor, part.start, part.stop - part.start)


def free_step(descriptor: int, mapping: SegmentMapping, step: int) -> bool:
    """Gives back the memory of a step. Returns False if another process may read it. Blocks.

    Raises:
        OSError: the file system cannot do this.
    """
    data = mapping.layout.step_bytes(step)
    with lock_exclusively(descriptor, data) as is_locked:
        if is_locked:
            for piece in pieces(mapping.layout.step_pages(step)):
                start = mapping.layout.data + piece.start * PAGE
                mapping.memory.madvise(mmap.MADV_REMOVE, start, len(piece) * PAGE)
        return is_locked


@contextmanager
def _locked_file(path: Path) -> Iterator[int]:
    """Creates and locks a file. Closes and unlinks it only if the block fails."""
    while True:
        path.parent.mkdir(mode=0o700, exist_ok=True)  # `reap` callers may remove an empty directory
        if path.parent.stat().st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "the directory belongs to another user")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still_at(path, descriptor):  # Another process may have reaped the file before the lock.
                yield descriptor
                return
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        os.close(descriptor)


def open_shared(path: Path, token: bytes | None = None, *, is_readonly: bool = True) -> SegmentMapping | None:
    """Maps a segment, by default for reading.

    Returns None if the file is missing, not a segment, has another token, or belongs to another user or node.
    """
    try:
        # Without a token, the path is that of a `Location`, which is a link in /proc for a private segment.
        access = os.O_RDONLY if is_readonly else os.O_RDWR
        descriptor = os.open(path, access | os.O_CLOEXEC | (0 if token is None else os.O_NOFOLLOW))
    except OSError:
        return None
    try:
        header = os.read(descriptor, _HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, found, kernel_id, pages, data = _HEADER.unpack(header)
        layout = SegmentLayout(pages)
        if magic != _MAGIC or (token is not None and found != token) or data != layout.data:
            return None
        if kernel_id != _kernel_id():
            return None
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_size < layout.nbytes:
            return None
        return SegmentMapping(path, layout, SegmentMemory.map(descriptor, layout, is_readonly=is_readonly))
    finally:
        os.close(descriptor)


def reap(directory: Path) -> list[Path]:
    """Removes the segments of processes that have ended. Returns their paths."""
    reaped = []
    for path in directory.glob(_PATTERN):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Raises while the owner runs.
                path.unlink()
                reaped.append(path)
            finally:
                os.close(descriptor)
    return reaped


def _is_still_at(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
