"""Other processes' segments, as a process without an event loop sees them (vLLM's EngineCore does)."""

from __future__ import annotations

from pathlib import Path

from cornserve.transport import segment
from cornserve.transport.errors import StaleError
from cornserve.transport.segment import Location, Mapping


class Reader:
    """Maps each file once."""

    def __init__(self) -> None:
        self._mappings: dict[str, Mapping] = {}

    def view(self, location: Location) -> memoryview:
        """The tensor's bytes, read-only, not copied.

        They are what they were announced as until whoever holds the reference lets go of it: check after copying.

        Raises:
            StaleError: it is no longer there.
        """
        mapping = self._mapping(location)
        mapping.check(location)
        return mapping.view(location.offset, location.nbytes)

    def check(self, location: Location) -> None:
        """Raises `StaleError` if what has been read from the view before may have been another tensor's."""
        self._mapping(location).check(location)

    def _mapping(self, location: Location) -> Mapping:
        mapping = self._mappings.get(location.path)
        if mapping is None:
            self._forget_unlinked()
            mapping = segment.open_shared(Path(location.path))
            if mapping is None:
                raise StaleError(f"the segment {location.path} is gone, and the process that made it")
            mapping.populate()
            self._mappings[location.path] = mapping
        return mapping

    def _forget_unlinked(self) -> None:
        """Their memory is freed when the last view of it is gone."""
        self._mappings = {path: mapping for path, mapping in self._mappings.items() if Path(path).exists()}
