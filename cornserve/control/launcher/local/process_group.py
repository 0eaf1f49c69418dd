"""The leader of a replica's session, and what may outlive it.

A session's id is its leader's pid and is not used again while the session has members. So what is left when a leader
has died, whatever it calls itself by now (vLLM's EngineCore renames itself), is found by its session. What has a
session of its own is found by its environment, which it has inherited, and which names the replica; only what has
cleared that, too, escapes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import psutil

from cornserve.control.launcher.local.shared_memory import mapped_by
from cornserve.control.launcher.local.threads import finish_in_thread
from cornserve.observe.logs import REPLICA_VARIABLE
from cornserve.process_id import ProcessId, current_boot, is_zombie

POLL_SECONDS = 0.02
TRACKER_SECONDS = 1.0
"""How long multiprocessing's resource tracker may take to unlink what killed processes have left in /dev/shm."""
_TRACKER = "multiprocessing.resource_tracker"


class ProcessGroup(ProcessId):
    replica: str
    """What its environment says as `REPLICA_VARIABLE`."""

    async def ended(self) -> None:
        """Returns when the process has ended, whoever's child it is."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # Not Linux, or a sandbox that does not have it.
            await self._poll()
            return
        try:
            if self.alive():
                await _readable(descriptor)
        finally:
            os.close(descriptor)

    async def _poll(self) -> None:
        while self.alive():
            await asyncio.sleep(POLL_SECONDS)

    def terminate(self) -> None:
        """Asks it, and only it, to end: it knows in which order what it has started should."""
        process = self.find_process()
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()

    def reap(self) -> int | None:
        """The exit status (negative: the signal), once, if it has ended and was our child."""
        if self.find_process() is None:
            return None
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status) if pid else None

    async def kill_session(self) -> None:
        """Kills the leader and what it has started; returns when nothing of it runs."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + TRACKER_SECONDS
        while await finish_in_thread(self._kill_members, spare_tracker=loop.time() < patience):
            await asyncio.sleep(POLL_SECONDS)

    def shared_memory(self) -> set[Path]:
        """What multiprocessing keeps in /dev/shm for the session."""
        return mapped_by(process.pid for process in self._members())

    def _kill_members(self, *, spare_tracker: bool) -> bool:
        """Whether there were any."""
        members = self._members()
        for process in members:
            with contextlib.suppress(psutil.Error):
                if not (spare_tracker and _is_tracker(process)):
                    process.kill()
        return bool(members)

    def _members(self) -> list[psutil.Process]:
        """The living processes of the session, and of those that have come from it."""
        # Else the pid is somebody else's now, who got it after the last member of the session had ended.
        session = self.boot == current_boot() and (self.find_process() is not None or not psutil.pid_exists(self.pid))
        return [process for pid in psutil.pids() if (process := self._member(pid, session=session)) is not None]

    def _member(self, pid: int, *, session: bool) -> psutil.Process | None:
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)  # Before the look at it: signals are refused if the pid is reused.
            is_ours = (session and os.getsid(pid) == self.pid) or process.environ().get(
                REPLICA_VARIABLE
            ) == self.replica
            if is_ours and not is_zombie(process):
                return process
        return None


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _is_tracker(process: psutil.Process) -> bool:
    return any(_TRACKER in argument for argument in process.cmdline())
