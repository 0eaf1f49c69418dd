"""Maps the segments of other processes on this node."""

from __future__ import annotations

import asyncio
import threading
from contextvars import Context
from pathlib import Path

from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import SegmentMapping


class SegmentMappings:
    """Maps each segment in `directory` once, if it has the token of its process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mappings: dict[bytes, SegmentMapping | None] = {}
        self._populations: set[asyncio.Task[None]] = set()
        self._stopped = threading.Event()

    def find(self, name: str, token: bytes) -> SegmentMapping | None:
        """Returns the segment of a process, or None if the process does not share the directory."""
        if token not in self._mappings:
            mapping = segment.open_shared(self._directory / Path(name).name, token)
            self._mappings[token] = mapping
            if mapping is not None:
                self._populate(mapping)
        return self._mappings[token]

    def drop(self, token: bytes) -> None:
        """Drops the segment of a process that has ended. Existing views keep it mapped."""
        self._mappings.pop(token, None)

    async def close(self) -> None:
        self._stopped.set()
        await asyncio.gather(*self._populations, return_exceptions=True)
        self._mappings.clear()

    def _populate(self, mapping: SegmentMapping) -> None:
        """Populates the mapping in a thread. Tensors can be read at the same time."""
        population = asyncio.create_task(asyncio.to_thread(mapping.populate, self._stopped.is_set), context=Context())
        self._populations.add(population)
        population.add_done_callback(self._populations.discard)
