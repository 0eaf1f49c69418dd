"""One wanted replica of a group: one process after another, until it is no longer wanted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import uuid4

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId
from cornserve.control.launcher.local.folder import Folder, Process
from cornserve.control.launcher.local.leader import Leader
from cornserve.control.launcher.local.machine import Machine
from cornserve.control.launcher.local.observe import Observed, observe
from cornserve.control.launcher.local.spawn import spawn
from cornserve.control.launcher.local.tail import reason
from cornserve.control.launcher.local.threads import finish_in_thread
from cornserve.task.spec import ExecutorSpec

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
"""How long an executor may take to free everything, after the drain."""
REASON_LINES = 100
"""How far back in its log the reason for a replica's end is looked for."""


class Place:
    def __init__(self, spec: ExecutorSpec, machine: Machine, found: tuple[Folder, Process] | None = None) -> None:
        """With a found replica, the place keeps to that one until it is claimed."""
        self._spec = spec
        self._machine = machine
        self._found = found
        self._heals = found is None
        self._unwanted = asyncio.Event()
        self._failures = 0
        self._was_ready = False
        self._replica = Replica(found[0].id if found else self._new_id(), self.group, ReplicaState.STARTING)
        machine.board.put(self._replica)

    @property
    def group(self) -> GroupKey:
        return GroupKey(self._spec.key)

    @property
    def ready(self) -> bool:
        return self._replica.state is ReplicaState.READY

    @property
    def wanted(self) -> bool:
        return not self._unwanted.is_set()

    def claim(self) -> None:
        """Heals from now on."""
        self._heals = True

    def give_up(self) -> None:
        """Drains, and ends."""
        self._unwanted.set()

    async def run(self) -> None:
        if self._found is not None:
            await self._attempt(self._keep_found(*self._found))
        while self.wanted and self._heals:
            await self._attempt(self._run_new())
            await self._pause()
        self._machine.board.remove(self._replica.id)

    async def _attempt(self, life: Coroutine[Any, Any, None]) -> None:
        try:
            await life
        except Exception as error:  # Whatever it is, the other places go on.
            log.exception("replica %s", self._replica.id)
            self._fail(f"cannot be started or removed: {error}")

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._unwanted.wait(), self._machine.pause(self._failures))

    async def _run_new(self) -> None:
        self._show_next()
        if not self._machine.slots.could_fit(self._spec.gpus):
            self._fail(f"can never start here: {self._machine.slots.need(self._spec.gpus)}", hopeless=True)
            await self._unwanted.wait()
            return
        slots = await self._take_slots()
        if slots is None:
            return
        try:
            await self._keep(*await finish_in_thread(self._start, slots))
        finally:
            self._machine.slots.release(slots)

    async def _keep_found(self, folder: Folder, process: Process) -> None:
        self._was_ready = True  # What became of it so far is not known, and not held against it.
        try:
            await self._keep(folder, process)
        finally:
            self._machine.slots.release(process.slots)

    def _show_next(self) -> None:
        """Shows the next replica in the place of the last one."""
        last, self._was_ready = self._replica, False
        if last.state is ReplicaState.FAILED:
            self._replica = Replica(self._new_id(), self.group, ReplicaState.STARTING, failures=self._failures)
            self._machine.board.replace(last.id, self._replica)

    async def _take_slots(self) -> tuple[str, ...] | None:
        """None if the place is given up before there are any."""
        slots = self._machine.slots
        while self.wanted:
            taken = slots.take(self._spec.gpus)
            if taken is not None:
                return taken
            self._show(message=slots.need(self._spec.gpus))
            await _first(slots.released(), self._unwanted.wait())
        return None

    def _start(self, slots: tuple[str, ...]) -> tuple[Folder, Process]:
        folder = self._machine.folders.create(self._replica.id)
        environment = self._machine.slots.environment(slots)
        try:
            return folder, spawn(folder, self._spec, slots, environment, self._machine.drain_seconds)
        except OSError:
            self._machine.folders.retire(folder)
            raise

    async def _keep(self, folder: Folder, process: Process) -> None:
        """Stays with a process until nothing is left of it."""
        try:
            await self._accompany(folder, process.leader)
        except ExceptionGroup:
            log.exception("replica %s is ended, because it cannot be followed", folder.id)
        status = process.leader.reap()
        lines = await finish_in_thread(self._machine.folders.logs, folder.id, REASON_LINES)
        if self.wanted:
            self._fail(_epitaph(status, reason(lines)))
        await process.leader.kill_session()
        await finish_in_thread(self._machine.folders.retire, folder)

    async def _accompany(self, folder: Folder, leader: Leader) -> None:
        async with asyncio.TaskGroup() as tasks:
            companions = [
                tasks.create_task(self._observe(folder)),
                tasks.create_task(self._drain_when_unwanted(leader)),
            ]
            await leader.ended()
            for companion in companions:
                companion.cancel()

    async def _observe(self, folder: Folder) -> None:
        async with contextlib.aclosing(observe(folder)) as observations:
            async for observed in observations:
                self._note(observed)

    def _note(self, observed: Observed) -> None:
        self._was_ready |= observed.state in (ReplicaState.READY, ReplicaState.DRAINING)
        if self.wanted:
            failures = 0 if self._was_ready else self._failures
            self._show(state=observed.state, message=observed.message, endpoint=observed.endpoint, failures=failures)

    async def _drain_when_unwanted(self, leader: Leader) -> None:
        await self._unwanted.wait()
        self._show(state=ReplicaState.DRAINING, message="finishes what is in flight")
        leader.terminate()
        await asyncio.sleep(self._machine.drain_seconds + STOP_SECONDS)
        log.warning("replica %s has not ended in time and is killed", self._replica.id)
        await leader.kill_session()

    def _fail(self, message: str, *, hopeless: bool = False) -> None:
        self._failures = 0 if self._was_ready else self._failures + 1
        log.warning("replica %s: %s", self._replica.id, message)
        self._show(
            state=ReplicaState.FAILED, message=message, endpoint=None, failures=self._failures, hopeless=hopeless
        )

    def _show(self, **changes: Any) -> None:
        self._replica = replace(self._replica, **changes)
        self._machine.board.put(self._replica)

    def _new_id(self) -> ReplicaId:
        return ReplicaId(f"{self.group}-{uuid4().hex[:12]}")


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Returns when any of them has."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _epitaph(status: int | None, last_words: str) -> str:
    match status:
        case None:
            return f"its process has ended; its last log line: {last_words}"
        case signaled if signaled < 0:
            return f"killed by {signal.Signals(-signaled).name}; its last log line: {last_words}"
        case _:
            return f"exited with status {status}: {last_words}"
