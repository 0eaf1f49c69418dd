"""Monitors the process of a replica until it exits, and cleans up after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.local.bounded_log import keep_bounded
from cornserve.control.launcher.local.executor_status import ExecutorStatus, watch_executor
from cornserve.control.launcher.local.local_machine import LocalMachine
from cornserve.control.launcher.local.state_dir import InvalidAddressesError, ProcessRecord, ReplicaDir
from cornserve.control.launcher.local.uninterrupted_thread import finish_in_thread
from cornserve.control.launcher.log_excerpts import find_error
from cornserve.exit_status import CANNOT_START
from cornserve.memory_limit import count_oom_kills, find_oom_counter
from cornserve.ticks import sleep_until_tick
from cornserve.wire.invocations import HEARTBEAT_SECONDS

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
"""Timeout for an executor to free its resources after the drain."""
SHARED_MEMORY_SECONDS = 1.0
"""Interval at which the shared memory files of a starting replica are recorded."""
UNREADY_MISSED_HEARTBEATS = 4
"""After this number of missed heartbeats, a replica is not ready: new requests go to other replicas."""
MAX_MISSED_HEARTBEATS = 12
"""After this number of missed heartbeats, a replica is killed and replaced."""
MAX_MISSED_HEARTBEATS_LOADING = 720
"""Replaces `MAX_MISSED_HEARTBEATS` for a replica that starts: loading a model may block its process for minutes."""
OOM_SECONDS = 10.0
"""A replica that exits within one to two of these intervals after the kernel has killed a process of its control group
for lack of memory was out of memory: its engine may die first."""
REASON_LINES = 100
"""Number of log lines that are searched for the error that ended a process."""


@dataclass(frozen=True, slots=True)
class ExecutorExit:
    """The end of an executor, with the reason for users. `cannot_start`: see `Replica`."""

    reason: str
    cannot_start: bool


class ProcessMonitor:
    """Monitors one process of a replica.

    Args:
        unwanted: once set, the process is drained and stopped.
        show: is called with each new status.
    """

    def __init__(
        self,
        machine: LocalMachine,
        replica_dir: ReplicaDir,
        process: ProcessRecord,
        unwanted: asyncio.Event,
        show: Callable[[ExecutorStatus], None],
    ) -> None:
        self._machine = machine
        self._replica_dir = replica_dir
        self._process_group = process.process_group
        self._unwanted = unwanted
        self._show = show
        self._started = asyncio.Event()
        if replica_dir.has_started:
            self._started.set()
        self._has_heartbeat = False
        """Whether the executor has responded in the current interval."""
        self._status = ExecutorStatus(ReplicaState.STARTING, "")
        self._kill_reason = ""
        self._oom_counter = find_oom_counter(self._process_group.pid)
        self._oom_kills = deque([count_oom_kills(self._oom_counter)], maxlen=2)
        """The last counts, which are `OOM_SECONDS` apart."""

    async def wait_for_exit(self) -> ExecutorExit:
        """Monitors the process until it exits."""
        try:
            await self._monitor()
        except* InvalidAddressesError as errors:
            self._kill_reason = f"cannot be reached: {errors.exceptions[0]}"
        except* Exception:
            log.exception("replica %s cannot be monitored and is stopped", self._replica_dir.id)
        is_out_of_memory = count_oom_kills(self._oom_counter) > self._oom_kills[0]
        status = self._process_group.reap_leader()
        lines = await finish_in_thread(self._machine.state_dir.logs, self._replica_dir.id, REASON_LINES)
        reason = _exit_reason(status, find_error(lines), self._kill_reason)
        if is_out_of_memory:
            reason = f"out of memory: {reason}"
        return ExecutorExit(reason, cannot_start=status == CANNOT_START and not self._kill_reason)

    async def cleanup(self) -> None:
        """Kills the remaining processes of the replica and archives its directory."""
        await self._process_group.kill_all()
        await finish_in_thread(self._machine.state_dir.archive, self._replica_dir)

    async def _monitor(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            monitors = [
                tasks.create_task(self._watch_status()),
                tasks.create_task(self._record_start()),
                tasks.create_task(keep_bounded(self._replica_dir.log)),
                tasks.create_task(self._drain_when_unwanted()),
                tasks.create_task(self._kill_when_unresponsive()),
                tasks.create_task(self._count_oom_kills()),
            ]
            await self._process_group.wait_for_leader_exit()
            for monitor in monitors:
                monitor.cancel()

    async def _watch_status(self) -> None:
        async with contextlib.aclosing(watch_executor(self._replica_dir, self._machine.load_credentials)) as statuses:
            async for status in statuses:
                self._has_heartbeat = True
                if status != self._status:
                    self._status = status
                    if status.state is not ReplicaState.STARTING:
                        self._started.set()
                    if not self._unwanted.is_set():
                        self._show(status)

    async def _kill_when_unresponsive(self) -> None:
        """Kills the process after too many missed heartbeats.

        It counts heartbeats instead of seconds, so that a pause of the launcher or of the whole machine does not kill
        responsive executors.
        """
        missed = 0
        while missed < (limit := MAX_MISSED_HEARTBEATS if self._started.is_set() else MAX_MISSED_HEARTBEATS_LOADING):
            self._has_heartbeat = False
            await sleep_until_tick(HEARTBEAT_SECONDS)
            missed = 0 if self._has_heartbeat else missed + 1
            if missed == UNREADY_MISSED_HEARTBEATS and not self._unwanted.is_set():
                message = "; ".join(filter(None, (self._status.message, "does not respond")))
                self._status = replace(self._status, state=ReplicaState.STARTING, message=message)
                self._show(self._status)
        self._kill_reason = f"did not respond for {limit * HEARTBEAT_SECONDS:g} s and was killed"
        log.warning("replica %s %s", self._replica_dir.id, self._kill_reason)
        await self._process_group.kill_all()

    async def _count_oom_kills(self) -> None:
        while True:
            await sleep_until_tick(OOM_SECONDS)
            self._oom_kills.append(count_oom_kills(self._oom_counter))

    async def _record_start(self) -> None:
        """Records the shared memory files of a starting replica, and finally that it has started."""
        while True:
            complete = self._started.is_set()
            files = await finish_in_thread(self._process_group.shared_memory_files)
            with contextlib.suppress(OSError):  # The disk may be full: try again.
                self._replica_dir.shared_memory.add(files)
                if complete:
                    self._replica_dir.record_start()
                    return
            if complete:
                await asyncio.sleep(SHARED_MEMORY_SECONDS)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SHARED_MEMORY_SECONDS):
                        await self._started.wait()

    async def _drain_when_unwanted(self) -> None:
        await self._unwanted.wait()
        addresses = self._replica_dir.read_addresses()
        self._show(ExecutorStatus(ReplicaState.DRAINING, "finishing the invocations in flight", addresses))
        self._process_group.terminate_leader()
        await asyncio.sleep(self._machine.drain_seconds + STOP_SECONDS)
        log.warning("replica %s has not exited in time and is killed", self._replica_dir.id)
        await self._process_group.kill_all()


def _exit_reason(status: int | None, error: str, kill_reason: str) -> str:
    last_line = f"its last log line: {error}" if error else "its log is empty"
    match status:
        case _ if kill_reason:
            return f"{kill_reason}; {last_line}"
        case None:
            return f"its process has exited; {last_line}"
        case signaled if signaled < 0:
            return f"killed by signal {-signaled} ({signal.strsignal(-signaled)}); {last_line}"
        case _ if status == CANNOT_START and error:
            return error
        case _:
            return f"exited with status {status}: {error or last_line}"
