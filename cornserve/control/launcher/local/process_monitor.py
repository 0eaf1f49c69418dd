"""One process of a replica, from its start or its discovery until nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import replace

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.local.bounded_log import keep_bounded
from cornserve.control.launcher.local.executor_status import ExecutorStatus, observe
from cornserve.control.launcher.local.local_machine import LocalMachine
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.control.launcher.local.tail import reason
from cornserve.control.launcher.local.threads import finish_in_thread

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
"""How long an executor may take to free everything, after the drain."""
NOTE_SECONDS = 1.0
"""How often a replica that starts is looked at for what it has in shared memory."""
BEAT_SECONDS = 1.0
"""Executors are heard so often."""
QUIET_BEATS = 10
"""After so many without a word, an executor is not ready any more: new requests go elsewhere."""
SILENT_BEATS = 30
"""After so many, it hangs, and is replaced."""
LOADING_BEATS = 1800
"""The same for one that starts: loading a model may block it for long."""
REASON_LINES = 100
"""How far back in its log the reason for a process's end is looked for."""


class ProcessMonitor:
    def __init__(
        self,
        machine: LocalMachine,
        folder: ReplicaDir,
        process: ProcessRecord,
        unwanted: asyncio.Event,
        show: Callable[[ExecutorStatus], None],
    ) -> None:
        self._machine = machine
        self._folder = folder
        self._leader = process.leader
        self._unwanted = unwanted
        self._show = show
        self._started = asyncio.Event()
        self._heard = asyncio.Event()
        self._observed = ExecutorStatus(ReplicaState.STARTING, "")
        self._verdict = ""
        """Why we have killed it."""

    async def last(self) -> str:
        """Stays with the process until it ends; says how it did. Once unwanted, it is made to."""
        try:
            await self._accompany()
        except ExceptionGroup:
            log.exception("replica %s is ended, because it cannot be followed", self._folder.id)
        status = self._leader.reap()
        lines = await finish_in_thread(self._machine.folders.logs, self._folder.id, REASON_LINES)
        return _exit_reason(status, reason(lines), self._verdict)

    async def cleanup(self) -> None:
        """Kills what the process has left running, and then removes its folder."""
        await self._leader.kill_session()
        await finish_in_thread(self._machine.folders.retire, self._folder)

    async def _accompany(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            companions = [
                tasks.create_task(self._observe()),
                tasks.create_task(self._note_shared_memory()),
                tasks.create_task(keep_bounded(self._folder.log)),
                tasks.create_task(self._drain_when_unwanted()),
                tasks.create_task(self._end_when_silent()),
            ]
            await self._leader.ended()
            for companion in companions:
                companion.cancel()

    async def _observe(self) -> None:
        async with contextlib.aclosing(observe(self._folder)) as observations:
            async for observed in observations:
                self._heard.set()
                self._observed = observed
                if observed.state is not ReplicaState.STARTING:
                    self._started.set()
                if not self._unwanted.is_set():
                    self._show(observed)

    async def _end_when_silent(self) -> None:
        """Counts silent beats, not seconds: if this process or the whole machine stood still, nobody could be heard."""
        silence = 0
        while silence < (patience := SILENT_BEATS if self._started.is_set() else LOADING_BEATS):
            self._heard.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), BEAT_SECONDS)
            silence = 0 if self._heard.is_set() else silence + 1
            if silence == QUIET_BEATS and not self._unwanted.is_set():
                message = "; ".join(filter(None, (self._observed.message, "does not answer")))
                self._show(replace(self._observed, state=ReplicaState.STARTING, message=message))
        self._verdict = f"did not answer for {patience * BEAT_SECONDS:g} s and was killed"
        log.warning("replica %s %s", self._folder.id, self._verdict)
        await self._leader.kill_session()

    async def _note_shared_memory(self) -> None:
        while True:
            complete = self._started.is_set()
            self._folder.shared_memory.add(await finish_in_thread(self._leader.shared_memory))
            if complete:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._started.wait(), NOTE_SECONDS)

    async def _drain_when_unwanted(self) -> None:
        await self._unwanted.wait()
        addresses = self._folder.read_addresses()
        self._show(ExecutorStatus(ReplicaState.DRAINING, "finishes what is in flight", addresses))
        self._leader.terminate()
        await asyncio.sleep(self._machine.drain_seconds + STOP_SECONDS)
        log.warning("replica %s has not ended in time and is killed", self._folder.id)
        await self._leader.kill_session()


def _exit_reason(status: int | None, last_words: str, verdict: str) -> str:
    said = f"its last log line: {last_words}" if last_words else "it has logged nothing"
    match status:
        case _ if verdict:
            return f"{verdict}; {said}"
        case None:
            return f"its process has ended; {said}"
        case signaled if signaled < 0:
            return f"ended by signal {-signaled} ({signal.strsignal(-signaled)}); {said}"
        case _:
            return f"exited with status {status}: {last_words or said}"
