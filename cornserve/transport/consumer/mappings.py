"""Maps the segments of other processes on this node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path

from cornserve.transport.memory import segment
from cornserve.transport.memory.growth import CHECKS
from cornserve.transport.memory.segment import Location, SegmentMapping


class SegmentMappings:
    """Maps each segment in `directory` once, if it has the token of its process.

    Args:
        idle_seconds: after this time, the owner may give back the memory of steps that are not read any more.
    """

    def __init__(self, directory: Path, idle_seconds: float) -> None:
        self._directory = directory
        self._check_seconds = idle_seconds / CHECKS
        self._mappings: dict[bytes, SegmentMapping | None] = {}
        self._uses: dict[SegmentMapping, dict[int, StepUse]] = {}
        """The use of each step that is held."""
        self._check_handle: asyncio.TimerHandle | None = None
        self._populations: set[asyncio.Task[None]] = set()

    def find(self, name: str, token: bytes) -> SegmentMapping | None:
        """Returns the segment of a process, or None if the process does not share the directory."""
        if token not in self._mappings:
            self._mappings[token] = segment.open_shared(self._directory / Path(name).name, token)
        return self._mappings[token]

    def hold(self, mapping: SegmentMapping, location: Location) -> list[StepUse] | None:
        """Makes the memory of a tensor readable, until `release` and a while longer: threads may still read it.

        Returns the uses to release, or None if the tensor has been freed.
        """
        uses = self._uses.setdefault(mapping, {})
        steps = mapping.layout.steps_of(location.offset, location.nbytes)
        if any(step not in uses for step in steps):
            added = mapping.hold(location)
            if added is None:
                return None
            self._populate(mapping, added)
            uses |= {step: StepUse() for step in steps if step not in uses}
            self._schedule_check()
        held = [uses[step] for step in steps]
        for use in held:
            use.readers += 1
        return held

    def release(self, uses: Iterable[StepUse]) -> None:
        for use in uses:
            use.readers -= 1
            use.unused_checks = 0

    def drop(self, token: bytes) -> None:
        """Drops the segment of a process that has ended. Existing views keep it mapped."""
        if dropped := self._mappings.pop(token, None):
            self._uses.pop(dropped, None)

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

    def _schedule_check(self) -> None:
        if self._check_handle is None:
            self._check_handle = asyncio.get_running_loop().call_later(self._check_seconds, self._check)

    def _check(self) -> None:
        """Drops the steps that have not been read for long."""
        self._check_handle = None
        for mapping, uses in self._uses.items():
            for step, use in list(uses.items()):
                use.unused_checks += not use.readers
                if use.unused_checks > CHECKS:
                    del uses[step]
                    mapping.drop([step])
        if any(self._uses.values()):
            self._schedule_check()


@dataclass(slots=True)
class StepUse:
    """The use of a step by the tensors in it that this process reads."""

    readers: int = 0
    unused_checks: int = 0
