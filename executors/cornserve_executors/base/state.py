"""The life of an executor process: loading, ready, draining."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from cornserve.v1 import executor_pb2 as pb

BEAT_SECONDS = 1.0
"""Observers hear so often that the event loop runs, also when nothing changes."""

_DESCRIPTIONS = {
    pb.PHASE_LOADING: "still loading",
    pb.PHASE_READY: "ready",
    pb.PHASE_DRAINING: "draining",
}


class State:
    def __init__(self) -> None:
        self._phase: pb.Phase.ValueType = pb.PHASE_LOADING
        self._message = ""
        self._takes_callers = True
        self._callers = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._deserted = asyncio.Event()
        self._deserted.set()
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def accepts(self) -> bool:
        """Also while it drains: a caller that it knows says itself, by leaving, that no more will come."""
        return self._phase in (pb.PHASE_READY, pb.PHASE_DRAINING) and not self._dead.done()

    @contextmanager
    def calling(self) -> Iterator[bool]:
        """A caller, until it leaves; gives whether it is taken at all."""
        if not self._takes_callers:
            yield False
            return
        self._callers += 1
        self._deserted.clear()
        try:
            yield True
        finally:
            self._callers -= 1
            if not self._callers:
                self._deserted.set()

    def take_no_more_callers(self) -> None:
        self._takes_callers = False

    @property
    def callers(self) -> int:
        return self._callers

    async def deserted(self) -> None:
        """Returns when no caller is left, and so nothing runs."""
        await self._deserted.wait()

    @property
    def description(self) -> str:
        return "dying" if self._dead.done() else _DESCRIPTIONS[self._phase]

    def enter(self, phase: pb.Phase.ValueType, message: str = "") -> None:
        self._phase, self._message = phase, message
        self._notify()

    def report(self, message: str) -> None:
        """What the current phase is busy with."""
        self._message = message
        self._notify()

    def close(self) -> None:
        """Ends all observations."""
        self._closed = True
        self._notify()

    def engine_died(self, reason: str) -> None:
        if not self._dead.done():
            self._dead.set_result(reason)

    async def death(self) -> str:
        """Returns, with the reason, when the engine has died."""
        return await asyncio.shield(self._dead)

    async def observations(self) -> AsyncIterator[pb.Observation]:
        """The present state, then the newest after each change, and every second; some changes may be left out."""
        while not self._closed:
            changed = self._changed
            yield pb.Observation(phase=self._phase, message=self._message)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), BEAT_SECONDS)

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
