"""The process of an app host, as its parent sees it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from cornserve.app_host.host_channel import HostChannel
from cornserve.app_host.stack_dump import find_location, has_frame
from cornserve.exit_reason import exit_reason

TRACE_SECONDS: Final = 1
"""The time in which a process writes its stack, unless the machine is very busy."""

_TRACE_POLL_SECONDS: Final = 0.02

_COMPLETE_SECONDS: Final = 0.2
"""The time without a further byte after which a stack without the source is complete."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The end of a process."""

    status: int
    """The exit status, or the negative number of the signal that killed the process."""

    def __str__(self) -> str:
        return exit_reason(self.status)

    @property
    def is_kill(self) -> bool:
        """Whether the process was killed from outside: by a person, or by the system because memory was short."""
        return self.status == -signal.SIGKILL


class HostProcess:
    """A process that a fork server has forked.

    Args:
        pidfd: a descriptor of the process.
    """

    def __init__(self, pid: int, pidfd: int, channel: HostChannel) -> None:
        self.pid = pid
        self.channel = channel
        self._pidfd = pidfd
        self._exit: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    def set_exit(self, status: int) -> None:
        """Records the end of the process."""
        if not self._exit.done():
            self._exit.set_result(ProcessExit(status))

    async def wait(self) -> ProcessExit:
        """Waits until the process has ended."""
        return await asyncio.shield(self._exit)

    def kill(self) -> None:
        """Kills the process immediately."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self._is_closed:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def trace(self, source: str) -> str:
        """Returns where the main thread is, preferably in the file `source`, or an empty text if it is unknown.

        The process need not cooperate: it may hold the global interpreter lock.
        """
        start = size = self.channel.dumped_bytes
        grown = monotonic()
        deadline = grown + TRACE_SECONDS
        self._signal(signal.SIGUSR1)
        while (now := monotonic()) < deadline and (size == start or now - grown < _COMPLETE_SECONDS):
            await asyncio.sleep(_TRACE_POLL_SECONDS)
            if self.channel.dumped_bytes != size:
                size, grown = self.channel.dumped_bytes, monotonic()
                if has_frame(self.channel.read_dumps(start), source):
                    break
        return find_location(self.channel.read_dumps(start), source)

    def crash_location(self, source: str) -> str:
        """Returns where the process crashed, preferably in the file `source`, or an empty text if it did not."""
        _, crash, dump = self.channel.read_dumps().rpartition("Fatal Python error")
        return find_location(dump, source) if crash else ""

    def close(self) -> None:
        """Kills the process and closes the channel."""
        self.kill()
        self.channel.close()
        if not self._is_closed:
            self._is_closed = True
            os.close(self._pidfd)
