"""Maps the segments of other processes on this node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import Location, SegmentMapping

CHECKS: Final = 2
"""Checks that a step survives without use. A process that has hung makes up for at most one of them."""


class SegmentMappings:
    """Maps each segment in `directory` once, if it has the token of its process.

    Args:
        idle_seconds: after this time, the owner may give back the memory of steps that are not read any more.
    """

    def __init__(self, directory: Path, idle_seconds: float) -> None:
        self._directory = directory
        self._check_seconds = idle_seconds / CHECKS
        self._mappings: dict[bytes, SegmentMapping | None] = {}
        self._uses: dict[tuple[SegmentMapping, int], _StepUse] = {}
        """The uses of each step that is held."""
        self._check_handle: asyncio.TimerHandle | None = None
        self._populations: set[asyncio.Task[None]] = set()

    def find(self, name: str, token: bytes) -> SegmentMapping | None:
        """Returns the segment of a process, or None if the process does not share the directory."""
        if token not in self._mappings:
            self._mappings[token] = segment.open_shared(self._directory / Path(name).name, token)
        return self._mappings[token]

    def hold(self, mapping: SegmentMapping, location: Location) -> bool:
        """Makes the memory of a tensor readable, until `release` and a while longer: threads may still read it.

        Returns False if the tensor has been freed.
        """
        added = mapping.hold(location)
        if added is None:
            return False
        if added:
            self._populate(mapping, added)
        for step in mapping.layout.steps_of(location.offset, location.nbytes):
            self._uses.setdefault((mapping, step), _StepUse()).readers += 1
        if self._check_handle is None:
            self._check_handle = asyncio.get_running_loop().call_later(self._check_seconds, self._check)
        return True

    def release(self, mapping: SegmentMapping, location: Location) -> None:
        for step in mapping.layout.steps_of(location.offset, location.nbytes):
            if use := self._uses.get((mapping, step)):
                use.readers -= 1
                use.unused_checks = 0

    def drop(self, token: bytes) -> None:
        """Drops the segment of a process that has ended. Existing views keep it mapped."""
        dropped = self._mappings.pop(token, None)
        self._uses = {key: use for key, use in self._uses.items() if key[0] is not dropped}

    async def close(self) -> None:
        if self._check_handle is not None:
            self._check_handle.cancel()
        await asyncio.gather(*self._populations, return_exceptions=True)
        self._mappings.clear()
        self._uses.clear()

    def _populate(self, mapping: SegmentMapping, steps: Iterable[int]) -> None:
        """Populates steps in a thread. Tensors can be read at the same time."""
        for step in steps:
            work = asyncio.to_thread(mapping.populate, mapping.layout.step_pages(step))
            population = asyncio.create_task(work, context=Context())
            self._populations.add(population)
            population.add_done_callback(self._populations.discard)

    def _check(self) -> None:
        """Drops the steps that have not been read for long."""
        for (mapping, step), use in list(self._uses.items()):
            use.unused_checks += not use.readers
            if use.unused_checks > CHECKS:
                del self._uses[mapping, step]
                mapping.drop([step])
        loop = asyncio.get_running_loop()
        self._check_handle = loop.call_later(self._check_seconds, self._check) if self._uses else None


@dataclass(slots=True)
class _StepUse:
    readers: int = 0
    unused_checks: int = 0
