"""The endpoints to which this process may connect. A message can name any address, so it is checked against them."""

from __future__ import annotations

import asyncio
from glob import glob
from pathlib import Path
from typing import Protocol


class PeerDirectory(Protocol):
    async def contains(self, endpoint: str) -> bool:
        """Returns whether a process of this instance has the endpoint now."""


class AnnouncedPeers:
    """The endpoints in the files that the executors of this instance write.

    Args:
        pattern: a glob pattern of the files. The first line of each contains an endpoint. Only this instance may write
            to them.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._endpoints: set[str] = set()
        self._reading = asyncio.Lock()
        self._reads = 0

    async def contains(self, endpoint: str) -> bool:
        """Reads the files again, because executors start and end. Concurrent callers share a read."""
        reads = self._reads
        async with self._reading:
            if self._reads == reads:  # no read has begun since the call
                self._reads += 1
                self._endpoints = await asyncio.to_thread(self._read)
        return endpoint in self._endpoints

    def _read(self) -> set[str]:
        return {line for path in glob(self._pattern) for line in _first_line(Path(path))}


def _first_line(path: Path) -> list[str]:
    """Returns the first line, or nothing if the file is empty or has been removed."""
    try:
        return path.read_text().splitlines()[:1]
    except OSError:
        return []
