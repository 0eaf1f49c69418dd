"""The segments of other processes on this node."""

from __future__ import annotations

import asyncio
import threading
from contextvars import Context
from pathlib import Path

from cornserve.transport import segment
from cornserve.transport.segment import Mapping


class Neighbours:
    """Finds out who shares memory with us: whose segment can be opened, and has their token in it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mappings: dict[bytes, Mapping | None] = {}
        self._populating: set[asyncio.Task[None]] = set()
        self._stopped = threading.Event()

    def find(self, name: str, token: bytes) -> Mapping | None:
        """The segment of a process that has announced something; None if it is on another node."""
        if token not in self._mappings:
            mapping = segment.open_shared(self._directory / Path(name).name, token)
            self._mappings[token] = mapping
            if mapping is not None:
                self._populate(mapping)
        return self._mappings[token]

    def forget(self, token: bytes) -> None:
        """Its process is gone. What is still read stays mapped as long as it is."""
        self._mappings.pop(token, None)

    async def close(self) -> None:
        self._stopped.set()
        await asyncio.gather(*self._populating, return_exceptions=True)
        self._mappings.clear()

    def _populate(self, mapping: Mapping) -> None:
        """In a thread, while the first tensors are read already."""
        populating = asyncio.create_task(asyncio.to_thread(mapping.populate, self._stopped.is_set), context=Context())
        self._populating.add(populating)
        populating.add_done_callback(self._populating.discard)
