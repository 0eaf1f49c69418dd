"""Accesses segments of other processes without an event loop, as vLLM's EngineCore does."""

from __future__ import annotations

from pathlib import Path

from cornserve.transport.errors import StaleError
from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import Location, SegmentMapping


class SegmentReader:
    """Maps each file once."""

    is_readonly = True

    def __init__(self) -> None:
        self._mappings: dict[str, SegmentMapping] = {}

    def view(self, location: Location) -> memoryview:
        """Returns the bytes of the tensor, read-only and without a copy.

        They are valid while another process holds a lease on the tensor: call `check` after copying.

        Raises:
            StaleError: the tensor has been freed.
        """
        mapping = self._mapping(location)
        mapping.check(location)
        return mapping.view(location.offset, location.nbytes)

    def check(self, location: Location) -> None:
        """Raises `StaleError` if bytes that were read from the view may belong to another tensor."""
        self._mapping(location).check(location)

    def _mapping(self, location: Location) -> SegmentMapping:
        mapping = self._mappings.get(location.path)
        if mapping is None:
            self._drop_unlinked()
            mapping = segment.open_shared(Path(location.path), is_readonly=self.is_readonly)
            if mapping is None:
                raise StaleError(f"the segment {location.path} is gone: its process has ended")
            self._mappings[location.path] = mapping
        return mapping

    def _drop_unlinked(self) -> None:
        """Drops mappings of removed files. The system frees the memory with the last view of it."""
        self._mappings = {path: mapping for path, mapping in self._mappings.items() if Path(path).exists()}


class SegmentWriter(SegmentReader):
    """Writes to memory that another process has lent to this one (`Slot.location`)."""

    is_readonly = False

    def buffer(self, location: Location) -> memoryview:
        """Returns the writable memory.

        Raises:
            StaleError: its owner does not need the content any more, or has ended.
        """
        mapping = self._mapping(location)
        mapping.check(location)
        return mapping.bytes[location.offset : location.offset + location.nbytes]
