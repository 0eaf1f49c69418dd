"""Receives the heartbeats of a process, and notices when they stop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from cornserve.blocking_apps import CurrentApp
from cornserve.heartbeat import BEAT_SECONDS, READY_BEAT
from cornserve.ticks import sleep_until_tick

READ_BYTES = 65536


class HeartbeatMonitor:
    """Reads from a pipe whose write end a process inherits.

    A process is blocked after `blocked_seconds` without heartbeats. The seconds are counted one by one, so that a pause
    of the supervisor or of the whole machine counts as one second.

    Args:
        ready: set when the process reports that it is ready.
    """

    def __init__(self, blocked_seconds: int, ready: asyncio.Event) -> None:
        self._blocked_seconds = blocked_seconds
        self._ready = ready
        self._has_begun = False
        self._silent_seconds = 0
        self._read_end, self.write_end = os.pipe()
        self.current_app_file = CurrentApp.create_file()
        self.current_app = CurrentApp(self.current_app_file)
        """The app whose task the process runs."""
        os.set_blocking(self._read_end, False)
        asyncio.get_running_loop().add_reader(self._read_end, self._receive)

    def _receive(self) -> None:
        beats = b""
        with suppress(BlockingIOError):
            beats = os.read(self._read_end, READ_BYTES)
        if beats:
            self._has_begun = True
            self._silent_seconds = 0
        if READY_BEAT in beats:
            self._ready.set()

    async def wait_until_blocked(self) -> None:
        """Returns when the heartbeats have begun and then stopped."""
        while self._silent_seconds < self._blocked_seconds:
            await sleep_until_tick(BEAT_SECONDS)
            self._silent_seconds += self._has_begun

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._read_end)
        os.close(self._read_end)
        os.close(self.write_end)
        os.close(self.current_app_file)
        self.current_app.close()
