"""The life of an executor process: loading, ready, draining; and how loaded it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from cornserve.v1 import executor_pb2 as pb

LOAD_SECONDS = 0.1
"""Observers hear of each phase at once, but of the load, which changes with each invocation, only so often."""

_DESCRIPTIONS = {
    pb.PHASE_LOADING: "still loading",
    pb.PHASE_WARMING_UP: "still warming up",
    pb.PHASE_READY: "ready",
    pb.PHASE_DRAINING: "draining",
}


class State:
    def __init__(self) -> None:
        self._phase: pb.Phase.ValueType = pb.PHASE_LOADING
        self._message = ""
        self._refuses = False
        self._running = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._phase_changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def accepts(self) -> bool:
        """Also while it drains, at first: callers hear of that a little later."""
        return self._phase in (pb.PHASE_READY, pb.PHASE_DRAINING) and not self._refuses and not self._dead.done()

    def refuse(self) -> None:
        """From now on, nothing new is accepted."""
        self._refuses = True

    @property
    def description(self) -> str:
        return "dying" if self._dead.done() else _DESCRIPTIONS[self._phase]

    def enter(self, phase: pb.Phase.ValueType, message: str = "") -> None:
        self._phase, self._message = phase, message
        self._notify_of_phase()

    def report(self, message: str) -> None:
        """What the current phase is busy with."""
        self._message = message
        self._notify_of_phase()

    def close(self) -> None:
        """Ends all observations."""
        self._closed = True
        self._notify_of_phase()

    def engine_died(self, reason: str) -> None:
        if not self._dead.done():
            self._dead.set_result(reason)

    async def death(self) -> str:
        """Returns, with the reason, when the engine has died."""
        return await asyncio.shield(self._dead)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._running += 1
        self._idle.clear()
        self._notify()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
            self._notify()

    @property
    def running_now(self) -> int:
        return self._running

    async def idle(self) -> None:
        """Returns when nothing runs."""
        await self._idle.wait()

    async def observations(self) -> AsyncIterator[pb.Observation]:
        """The present state, then the newest after each change; changes in between may be left out."""
        while not self._closed:
            changed, phase_changed = self._changed, self._phase_changed
            yield pb.Observation(phase=self._phase, message=self._message, load=pb.Load(running=self._running))
            await changed.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(phase_changed.wait(), LOAD_SECONDS)

    def _notify_of_phase(self) -> None:
        changed, self._phase_changed = self._phase_changed, asyncio.Event()
        changed.set()
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
