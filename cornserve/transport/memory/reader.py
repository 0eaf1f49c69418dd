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
        self._populated: set[tuple[str, int]] = set()
        """The steps that this process has touched, by the path of their segment."""

    def view(self, location: Location) -> memoryview:
        """Returns the bytes of the tensor, read-only and without a copy.

        They are valid while another process holds a lease on the tensor: call `check` after copying. Blocks when this
        process uses a step for the first time.

        Raises:
            StaleError: the tensor has been freed.
        """
        return self._checked(location).view(location.offset, location.nbytes)

    def check(self, location: Location) -> None:
        """Raises `StaleError` if bytes that were read from the view may belong to another tensor."""
        self._mapping(location).check(location)

    def _checked(self, location: Location) -> SegmentMapping:
        """Returns the segment of a tensor. Page faults at each first touch would take several times as long as a copy.

        Raises `StaleError`.
        """
        mapping = self._mapping(location)
        mapping.check(location)
        for step in mapping.layout.steps_of(location.offset, location.nbytes):
            if (mapping.path, step) not in self._populated:
                mapping.populate(mapping.layout.step_pages(step))
                self._populated.add((mapping.path, step))
        return mapping

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
        self._populated = {(path, step) for path, step in self._populated if path in self._mappings}


class SegmentWriter(SegmentReader):
    """Writes to memory that another process has lent to this one (`Slot.location`)."""

    is_readonly = False

    def buffer(self, location: Location) -> memoryview:
        """Returns the writable memory. Blocks like `view`.

        Raises:
            StaleError: its owner does not need the content any more, or has ended.
        """
        return self._checked(location).bytes[location.offset : location.offset + location.nbytes]
