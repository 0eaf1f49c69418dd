"""The processes of one replica: the session that its executor leads, and processes that left the session.

The id of a session is its leader's pid, which the system does not reuse while the session has members. After the
leader has died, its session therefore still identifies the remaining processes, even if they have changed their names
as vLLM's EngineCore does. A process that has started its own session is found by `CORNSERVE_REPLICA`, which it
inherits in its environment. A process with its own session and without this variable is not found.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import psutil

from cornserve.control.launcher.local.leaked_shared_memory import files_mapped_by
from cornserve.control.launcher.local.uninterrupted_thread import finish_in_thread
from cornserve.observe.logs import REPLICA_VARIABLE
from cornserve.process_id import ProcessId, current_boot, is_zombie

POLL_SECONDS = 0.02
TRACKER_SECONDS = 1.0
"""Timeout for multiprocessing's resource tracker to unlink the files of killed processes in /dev/shm."""
_TRACKER = "multiprocessing.resource_tracker"


class ProcessGroup(ProcessId):
    """The leader's process id and the replica id that all processes of the group have in their environment."""

    replica: str

    async def wait_for_leader_exit(self) -> None:
        """Returns when the leader has exited, even if it is not a child of this process."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # The system is not Linux, or a sandbox does not support pidfds.
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

    def terminate_leader(self) -> None:
        """Sends SIGTERM to the leader only: the leader stops its own children in the right order."""
        process = self.find_process()
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()

    def kill_leader(self) -> bool:
        """Sends SIGKILL to the leader only, like the kernel when memory is short. Returns whether it ran."""
        process = self.find_process()
        if process is None or is_zombie(process):
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
        return True

    def reap_leader(self) -> int | None:
        """Reaps the leader and returns its exit status, negative for a signal.

        Returns None if the leader still runs, has been reaped already, or is not a child of this process.
        """
        if self.find_process() is None:
            return None
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status) if pid else None

    async def kill_all(self) -> None:
        """Kills all processes of the group and returns when none is left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TRACKER_SECONDS
        while await finish_in_thread(self._kill_members, spare_tracker=loop.time() < deadline):
            await asyncio.sleep(POLL_SECONDS)

    def shared_memory_files(self) -> set[Path]:
        """Returns the files in /dev/shm that multiprocessing has created for the group."""
        return files_mapped_by(process.pid for process in self._members())

    def _kill_members(self, *, spare_tracker: bool) -> bool:
        """Kills the current members. Returns False if the group is empty."""
        members = self._members()
        for process in members:
            with contextlib.suppress(psutil.Error):
                if not (spare_tracker and _is_tracker(process)):
                    process.kill()
        return bool(members)

    def _members(self) -> list[psutil.Process]:
        # If another process has the leader's pid, the old session has ended, and that process's session is not ours.
        session_is_ours = self.boot == current_boot() and (
            self.find_process() is not None or not psutil.pid_exists(self.pid)
        )
        members = (self._member(pid, session_is_ours=session_is_ours) for pid in psutil.pids())
        return [process for process in members if process is not None]

    def _member(self, pid: int, *, session_is_ours: bool) -> psutil.Process | None:
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)  # Created before the checks: psutil refuses to signal a reused pid.
            in_session = session_is_ours and os.getsid(pid) == self.pid
            is_member = in_session or process.environ().get(REPLICA_VARIABLE) == self.replica
            if is_member and not is_zombie(process):
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
