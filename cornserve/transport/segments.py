"""Other processes' segments, as a process without an event loop sees them (vLLM's EngineCore does)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cornserve.transport import segment
from cornserve.transport.errors import StaleError
from cornserve.transport.segment import Mapping


@dataclass(frozen=True, slots=True)
class Location:
    """Where on this node a tensor is, for whoever holds no reference to it but is told by somebody who does."""

    path: str
    offset: int
    nbytes: int
    generation: int


class Segments:
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
        self._compare(mapping, location)
        return mapping.view(location.offset, location.nbytes)

    def check(self, location: Location) -> None:
        """Raises `StaleError` if what has been read from the view before may have been another tensor's."""
        self._compare(self._mapping(location), location)

    def _compare(self, mapping: Mapping, location: Location) -> None:
        if not mapping.holds(location.generation, location.offset):
            raise StaleError(f"the tensor at {location.offset} of {location.path} has been freed")

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
