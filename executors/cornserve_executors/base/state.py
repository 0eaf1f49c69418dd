"""The state of an executor process: its phase, its callers, and whether its engine is alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from cornserve.concurrency import Broadcast
from cornserve.ticks import next_tick
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.invocations import HEARTBEAT_SECONDS

_DESCRIPTIONS = {
    pb.PHASE_LOADING: "still loading",
    pb.PHASE_READY: "ready",
    pb.PHASE_DRAINING: "draining",
}


class ExecutorState:
    def __init__(self) -> None:
        self._phase: pb.Phase.ValueType = pb.PHASE_LOADING
        self._message = ""
        self._accepts_callers = True
        self._is_closed = False
        self._changed = Broadcast()
        self._no_callers = asyncio.Event()
        self._no_callers.set()
        self._engine_death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.callers = 0
        """The number of connected callers that were accepted."""

    @property
    def accepts_invocations(self) -> bool:
        """Whether callers may start invocations. They may also do so during the drain, until they disconnect."""
        return self._phase in (pb.PHASE_READY, pb.PHASE_DRAINING) and not self._engine_death.done()

    @property
    def is_ready(self) -> bool:
        return self._phase == pb.PHASE_READY and not self._engine_death.done()

    @property
    def description(self) -> str:
        return "dying" if self._engine_death.done() else _DESCRIPTIONS[self._phase]

    def add_caller(self) -> bool:
        """Returns whether the caller is accepted. Call `remove_caller` for each accepted caller."""
        if self._accepts_callers:
            self.callers += 1
            self._no_callers.clear()
        return self._accepts_callers

    def remove_caller(self) -> None:
        self.callers -= 1
        if not self.callers:
            self._no_callers.set()

    def refuse_new_callers(self) -> None:
        self._accepts_callers = False

    async def wait_without_callers(self) -> None:
        """Waits until no caller is connected, so that no invocation runs."""
        await self._no_callers.wait()

    def set_phase(self, phase: pb.Phase.ValueType, message: str = "") -> None:
        self._phase, self._message = phase, message
        self._changed.notify()

    def report_progress(self, message: str) -> None:
        """Sets the message of the current phase."""
        self._message = message
        self._changed.notify()

    def close(self) -> None:
        """Ends all observations."""
        self._is_closed = True
        self._changed.notify()

    def set_engine_dead(self, reason: str) -> None:
        if not self._engine_death.done():
            self._engine_death.set_result(reason)

    async def wait_engine_death(self) -> str:
        """Waits until the engine has died; returns the reason."""
        return await asyncio.shield(self._engine_death)

    async def observations(self) -> AsyncIterator[pb.Observation]:
        """Yields the current state, then the latest state after each change and at each heartbeat. Intermediate states
        may be skipped."""
        while not self._is_closed:
            change = self._changed.next_change()
            yield pb.Observation(phase=self._phase, message=self._message)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_tick(HEARTBEAT_SECONDS)):
                    await change.wait()
