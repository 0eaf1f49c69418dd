"""Keeps one wanted replica of a group running: starts a replacement whenever its process exits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cornserve.app.record import FailureReason, ReplicaExit, ReplicaState
from cornserve.concurrency import run_unless
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId
from cornserve.control.launcher.local.executor_status import ExecutorStatus
from cornserve.control.launcher.local.local_machine import STABLE_SECONDS, LocalMachine
from cornserve.control.launcher.local.process_monitor import ProcessMonitor
from cornserve.control.launcher.local.replica_ids import new_replica_id
from cornserve.control.launcher.local.spawn import spawn_executor
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.control.launcher.local.uninterrupted_thread import finish_in_thread
from cornserve.control.launcher.local.warm_process import WarmProcess, WarmProcessError
from cornserve.control.launcher.log_excerpts import cut_line
from cornserve.task.spec import ExecutorSpec

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""The interval at which a replica that cannot start here checks whether it can start now."""


class ReplicaSupervisor:
    """Runs one replica process after another until the replica is not wanted any more.

    Args:
        group: the key of the replica's group.
        slot_type: the type of the replica's slots, or None for any.
        adopted: a replica of an earlier launcher. It is not replaced before `claim` is called.
    """

    def __init__(
        self,
        group: GroupKey,
        spec: ExecutorSpec,
        machine: LocalMachine,
        slot_type: str | None = None,
        adopted: tuple[ReplicaDir, ProcessRecord] | None = None,
    ) -> None:
        self.group = group
        self._spec = spec
        self._slot_type = slot_type
        self._machine = machine
        self._adopted = adopted
        self._replaces = adopted is None
        self._unwanted = asyncio.Event()
        self._failures = 0
        """Consecutive replicas that exited before they were ready."""
        self._unstable = 0
        """Consecutive replicas that exited before they were stable."""
        self._was_ready = False
        self._ready_since: float | None = None
        """Event loop time; None for an adopted replica."""
        self._replica = Replica(adopted[0].id if adopted else self._new_id(), self.group, ReplicaState.STARTING)
        machine.status_board.update(self._replica)

    @property
    def ready(self) -> bool:
        return self._replica.state is ReplicaState.READY

    @property
    def wanted(self) -> bool:
        return not self._unwanted.is_set()

    def claim(self, slot_type: str | None = None) -> None:
        """Marks an adopted replica as wanted: it is replaced when it exits.

        Args:
            slot_type: the type of the slots of its replacement.
        """
        self._replaces, self._slot_type = True, slot_type

    def retire(self) -> None:
        """Drains and stops the replica, without a replacement."""
        self._unwanted.set()

    async def run(self) -> None:
        try:
            with self._machine.warm_processes.keep(self._spec.executor):
                await self._run_all()
        finally:
            self._machine.slab_budget.release(self)

    async def _run_all(self) -> None:
        if self._adopted is not None:
            if self._spec.has_tensors:
                self._machine.slab_budget.grant(self)
            self._was_ready = True  # Its history is unknown: its exit does not count as a failed start.
            await self._log_errors(self._run_adopted(*self._adopted))
        while self.wanted and self._replaces:
            if await self._can_start():
                await self._log_errors(self._run_new())
                await self._wait_restart_delay()
        self._machine.status_board.remove(self._replica.id)

    async def _log_errors(self, work: Coroutine[Any, Any, None]) -> None:
        """Turns an error into a failure of this replica: the other replicas keep running."""
        try:
            await work
        except Exception as error:
            log.exception("replica %s cannot be started or removed", self._replica.id)
            self._fail(f"cannot be started or removed: {error}")

    async def _can_start(self) -> bool:
        """Returns whether the machine can start replicas now, or waits before the next check.

        A failed check does not count as a failure of the replica.
        """
        problem, shortage = await finish_in_thread(self._machine.state_dir.find_problem), ""
        if self._spec.has_tensors:
            shortage = await finish_in_thread(self._machine.slab_budget.reserve, self)
        problem = problem or shortage
        if problem:
            self._show(
                state=ReplicaState.FAILED,
                message=problem,
                endpoint=None,
                metrics=None,
                restart_delay=0,
                unschedulable=bool(shortage),
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._unwanted.wait()
        return not problem

    async def _wait_restart_delay(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._replica.restart_delay):
                await self._unwanted.wait()

    async def _run_new(self) -> None:
        self._show_replacement()
        slots = self._machine.device_slots
        if slots.could_fit(self._spec.gpus, self._slot_type):
            allocated = await self._allocate_slots()
            if allocated is not None:
                with slots.release_after(allocated):
                    await self._run_on(allocated)
        else:
            need = slots.describe_need(self._spec.gpus, self._slot_type)
            self._fail(f"can never start here: {need}", unschedulable=True)
            await self._unwanted.wait()

    async def _run_on(self, slots: tuple[str, ...]) -> None:
        """Runs the replica on the slots, unless it is retired while its engine is imported."""
        find = self._machine.warm_processes.find
        finding = asyncio.ensure_future(find(self._spec.executor, slots, lambda message: self._show(message=message)))
        if not await run_unless(self._unwanted, finding):
            return
        warm = finding.result()
        try:
            started = await finish_in_thread(self._start, slots, warm)
        except WarmProcessError as error:
            assert warm is not None
            self._machine.warm_processes.discard(warm, error)
            started = await finish_in_thread(self._start, slots, None)
        await self._monitor(*started)

    async def _run_adopted(self, replica_dir: ReplicaDir, process: ProcessRecord) -> None:
        with self._machine.device_slots.release_after(process.slots):
            await self._monitor(replica_dir, process)

    def _show_replacement(self) -> None:
        """Replaces a failed replica with a starting replica on the status board."""
        last, self._was_ready, self._ready_since = self._replica, False, None
        if last.state is ReplicaState.FAILED:
            self._replica = Replica(self._new_id(), self.group, ReplicaState.STARTING, failures=self._failures)
            self._machine.status_board.replace(last.id, self._replica)

    async def _allocate_slots(self) -> tuple[str, ...] | None:
        """Allocates slots as soon as enough are free. Returns None if the replica is retired first."""
        slots = self._machine.device_slots
        while self.wanted:
            allocated = slots.allocate(self._spec.gpus, self._slot_type)
            if allocated is not None:
                self._show(message="", reason="")
                return allocated
            released = slots.releases.next_change()
            need = slots.describe_need(self._spec.gpus, self._slot_type)
            self._show(message=need, reason=FailureReason.INSUFFICIENT_CAPACITY)
            await run_unless(self._unwanted, released.wait())
        return None

    def _start(self, slots: tuple[str, ...], warm: WarmProcess | None) -> tuple[ReplicaDir, ProcessRecord]:
        replica_dir = self._machine.state_dir.create_replica_dir(self._replica.id)
        try:
            return replica_dir, spawn_executor(replica_dir, self._spec, slots, self._machine, warm)
        except Exception:  # Without a process, nothing else would remove the directory.
            self._machine.state_dir.archive(replica_dir)
            raise

    async def _monitor(self, replica_dir: ReplicaDir, process: ProcessRecord) -> None:
        monitor = ProcessMonitor(self._machine, replica_dir, process, self._unwanted, self._show_status)
        ended = await monitor.wait_for_exit()
        if self.wanted:
            time = datetime.now(UTC).replace(microsecond=0)
            exit = ReplicaExit(replica=replica_dir.id, group=self.group, time=time, message=cut_line(ended.reason))
            self._machine.status_board.add_exit(self.group, exit)
            self._fail(ended.reason, cannot_start=ended.cannot_start)
        await monitor.cleanup()

    def _show_status(self, status: ExecutorStatus) -> None:
        if status.state in (ReplicaState.READY, ReplicaState.DRAINING) and not self._was_ready:
            self._was_ready, self._ready_since = True, _now()
        self._show(
            state=status.state,
            message=status.message,
            endpoint=None if status.addresses is None else status.addresses.endpoint,
            metrics=None if status.addresses is None else status.addresses.metrics,
            failures=0 if self._was_ready else self._failures,
        )

    def _fail(self, message: str, *, unschedulable: bool = False, cannot_start: bool = False) -> None:
        self._failures = 0 if self._was_ready else self._failures + 1
        is_stable = self._ready_since is None or _now() - self._ready_since > STABLE_SECONDS
        self._unstable = 0 if self._was_ready and is_stable else self._unstable + 1
        log.warning("replica %s: %s", self._replica.id, message)
        self._show(
            state=ReplicaState.FAILED,
            message=message,
            endpoint=None,
            metrics=None,
            failures=self._failures,
            restart_delay=self._machine.restart_delay(self._failures, self._unstable),
            unschedulable=unschedulable,
            cannot_start=cannot_start,
        )

    def _show(self, **changes: Any) -> None:
        self._replica = replace(self._replica, **changes)
        self._machine.status_board.update(self._replica)

    def _new_id(self) -> ReplicaId:
        return new_replica_id(self.group)


def _now() -> float:
    return asyncio.get_running_loop().time()
