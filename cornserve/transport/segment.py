"""The file that a producing process shares with its node: a header, a table of generations, and pages of data.

The table has a number for each page of data, apart from the data, so that nothing anybody stores can be mistaken for a
generation. A tensor's generation stands at its first page; 0 is nobody's. It changes before the pages are given to
another tensor, and no number is used twice, so who finds the same number before and after reading has read one tensor.

The owner holds a lock on the file as long as it lives. Unlike a process id, that means the same in every pod of a node.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cornserve.transport.errors import StaleError

log = logging.getLogger(__name__)

PAGE: Final = 4096
"""What tensors are aligned to: copies are three times as slow when source and destination differ modulo 4 KiB."""

TOKEN_BYTES: Final = 16

_HEADER = struct.Struct(f"<8s{TOKEN_BYTES}sQQQ")
_MAGIC = b"CORNSLB1"
_GENERATION_BYTES = 8
_PATTERN = "cornserve-*.slab"

_MADV_POPULATE_READ: Final = 22
_MADV_POPULATE_WRITE: Final = 23
_POPULATE_BYTES: Final = 8 << 20
"""Populated in one call, which keeps the interpreter's lock: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are in a segment with so many pages of data."""

    pages: int

    @property
    def table(self) -> slice:
        return slice(PAGE, PAGE + self.pages * _GENERATION_BYTES)

    @property
    def data(self) -> int:
        return PAGE + pages_of(self.pages * _GENERATION_BYTES) * PAGE

    @property
    def nbytes(self) -> int:
        return self.data + self.pages * PAGE

    def page_at(self, offset: int) -> int:
        """The page of data that begins at this offset of the file."""
        page, rest = divmod(offset - self.data, PAGE)
        if rest or not 0 <= page < self.pages:
            raise ValueError(f"no page of data begins at {offset}")
        return page


def pages_of(nbytes: int) -> int:
    return -(-nbytes // PAGE)


def name_of(token: bytes) -> str:
    return f"cornserve-{token.hex()}.slab"


@dataclass(frozen=True, slots=True)
class Location:
    """Where on this node a tensor is, for whoever holds no reference to it but is told by somebody who does."""

    path: str
    offset: int
    nbytes: int
    generation: int


class Mapping:
    """A segment, mapped."""

    def __init__(self, layout: Layout, memory: mmap.mmap) -> None:
        self.layout = layout
        self.memory = memory
        self.bytes = memoryview(memory)
        self.generations = self.bytes[layout.table].cast("Q")

    def view(self, offset: int, nbytes: int) -> memoryview:
        return self.bytes[offset : offset + nbytes].toreadonly()

    def holds(self, generation: int, offset: int) -> bool:
        """Whether the tensor that begins there is (still) the one of that generation."""
        return self.generations[self.layout.page_at(offset)] == generation

    def check(self, location: Location) -> None:
        """Raises `StaleError` if what is there may be another tensor."""
        if not self.holds(location.generation, location.offset):
            raise StaleError(f"the tensor at {location.offset} of {location.path} has been freed")

    def populate(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Lets the system set up all pages: the first touch of one is ten times as slow as the next. Blocks."""
        readonly = self.bytes.readonly
        advice = _MADV_POPULATE_READ if readonly else _MADV_POPULATE_WRITE
        with suppress(OSError, ValueError):  # an older system does it at the first touch
            for start in range(0, self.layout.nbytes, _POPULATE_BYTES):
                if is_stopped():
                    return
                self.memory.madvise(advice, start, min(_POPULATE_BYTES, self.layout.nbytes - start))


def create(directory: Path, token: bytes, pages: int) -> tuple[Mapping, int]:
    """Makes a segment, and its memory, with no page left to be touched first. Blocks for as long as that takes.

    Returns it with the descriptor whose lock says that its owner lives.
    """
    layout = Layout(pages)
    path = directory / name_of(token)
    with _locked_file(path) as descriptor:
        os.posix_fallocate(descriptor, 0, layout.nbytes)  # so that a full tmpfs is an error now, not a SIGBUS later
        memory = mmap.mmap(descriptor, layout.nbytes)
        mapping = Mapping(layout, memory)
        mapping.populate()
        memory[: _HEADER.size] = _HEADER.pack(_MAGIC, token, os.getpid(), pages, layout.data)
        return mapping, descriptor


@contextmanager
def _locked_file(path: Path) -> Iterator[int]:
    """A new file, locked by us, which is closed and unlinked only when the block fails."""
    while True:
        path.parent.mkdir(mode=0o700, exist_ok=True)  # Whoever reaps removes it when it is empty.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still_at(path, descriptor):  # nobody has reaped it between the two
                yield descriptor
                return
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        os.close(descriptor)


def open_shared(path: Path, token: bytes | None = None) -> Mapping | None:
    """Maps a segment for reading. None if there is no such file, or it is not the one with that token."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        header = os.read(descriptor, _HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, found, _, pages, data = _HEADER.unpack(header)
        layout = Layout(pages)
        if magic != _MAGIC or (token is not None and found != token) or data != layout.data:
            return None
        if os.fstat(descriptor).st_size < layout.nbytes:
            return None
        return Mapping(layout, mmap.mmap(descriptor, layout.nbytes, prot=mmap.PROT_READ))
    finally:
        os.close(descriptor)


def reap(directory: Path) -> list[Path]:
    """Removes the segments of processes that are gone, and returns them."""
    reaped = []
    for path in directory.glob(_PATTERN):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its owner lives
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
