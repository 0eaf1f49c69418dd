"""One wanted replica of a group: one process after another, until it is no longer wanted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import uuid4

from cornserve.app.record import ReplicaState
from cornserve.concurrency import run_unless
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId
from cornserve.control.launcher.local.executor_status import ExecutorStatus
from cornserve.control.launcher.local.local_machine import STEADY_SECONDS, LocalMachine
from cornserve.control.launcher.local.process_monitor import ProcessMonitor
from cornserve.control.launcher.local.spawn import spawn
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.control.launcher.local.threads import finish_in_thread
from cornserve.task.spec import ExecutorSpec

log = logging.getLogger(__name__)


class ReplicaSupervisor:
    def __init__(
        self, spec: ExecutorSpec, machine: LocalMachine, found: tuple[ReplicaDir, ProcessRecord] | None = None
    ) -> None:
        """With a found replica, the place keeps to that one until it is claimed."""
        self._spec = spec
        self._machine = machine
        self._found = found
        self._heals = found is None
        self._unwanted = asyncio.Event()
        self._failures = 0
        self._deaths = 0
        self._was_ready = False
        self._ready_since: float | None = None
        """By the event loop's clock; None: not known."""
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
            self._was_ready = True  # What became of it so far is not known, and not held against it.
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
            await asyncio.wait_for(self._unwanted.wait(), self._replica.pause)

    async def _run_new(self) -> None:
        self._show_next()
        if self._machine.slots.could_fit(self._spec.gpus):
            slots = await self._take_slots()
            if slots is not None:
                with self._machine.slots.holding(slots):
                    await self._keep(*await finish_in_thread(self._start, slots))
        else:
            self._fail(f"can never start here: {self._machine.slots.need(self._spec.gpus)}", unschedulable=True)
            await self._unwanted.wait()

    async def _keep_found(self, folder: ReplicaDir, process: ProcessRecord) -> None:
        with self._machine.slots.holding(process.slots):
            await self._keep(folder, process)

    def _show_next(self) -> None:
        """Shows the next replica in the place of the last one."""
        last, self._was_ready, self._ready_since = self._replica, False, None
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
            await run_unless(self._unwanted, slots.released())
        return None

    def _start(self, slots: tuple[str, ...]) -> tuple[ReplicaDir, ProcessRecord]:
        folder = self._machine.folders.create(self._replica.id)
        environment = self._machine.slots.environment(slots)
        try:
            return folder, spawn(folder, self._spec, slots, environment, self._machine)
        except Exception:  # Of the system, or of psutil: without a process, nobody would ever remove the folder.
            self._machine.folders.retire(folder)
            raise

    async def _keep(self, folder: ReplicaDir, process: ProcessRecord) -> None:
        life = ProcessMonitor(self._machine, folder, process, self._unwanted, self._observe)
        message = await life.last()
        if self.wanted:
            self._fail(message)
        await life.cleanup()

    def _observe(self, observed: ExecutorStatus) -> None:
        if observed.state in (ReplicaState.READY, ReplicaState.DRAINING) and not self._was_ready:
            self._was_ready, self._ready_since = True, _now()
        failures = 0 if self._was_ready else self._failures
        where = observed.addresses
        self._show(
            state=observed.state,
            message=observed.message,
            endpoint=None if where is None else where.endpoint,
            metrics=None if where is None else where.metrics,
            failures=failures,
        )

    def _fail(self, message: str, *, unschedulable: bool = False) -> None:
        self._failures = 0 if self._was_ready else self._failures + 1
        is_steady = self._ready_since is None or _now() - self._ready_since > STEADY_SECONDS
        self._deaths = 0 if self._was_ready and is_steady else self._deaths + 1
        log.warning("replica %s: %s", self._replica.id, message)
        self._show(
            state=ReplicaState.FAILED,
            message=message,
            endpoint=None,
            metrics=None,
            failures=self._failures,
            pause=self._machine.pause(self._failures, self._deaths),
            unschedulable=unschedulable,
        )

    def _show(self, **changes: Any) -> None:
        self._replica = replace(self._replica, **changes)
        self._machine.board.put(self._replica)

    def _new_id(self) -> ReplicaId:
        return ReplicaId(f"{self.group}-{uuid4().hex[:12]}")


def _now() -> float:
    return asyncio.get_running_loop().time()
