"""Connections between a producing and a consuming process, with heartbeats that detect a process that hangs.

TCP keepalive does not detect a hang: the operating system answers for the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from cornserve.concurrency import run_unless
from cornserve.wire.codec import Codec, Received, Sent
from cornserve.wire.connection import MessageConnection

HEARTBEATS_PER_LEASE: Final = 4


class HeartbeatConnection(MessageConnection[Sent, Received]):
    """Aborts when the other end finishes."""

    def __init__(self, codec: Codec[Sent, Received], apply: Callable[[Received], None], heartbeat: Sent) -> None:
        super().__init__(codec, self._apply_message)
        self._apply = apply
        self._heartbeat = heartbeat

    async def exchange_heartbeats(self, interval_seconds: float, heartbeats: int) -> bool:
        """Returns True after `heartbeats` intervals without a message of the other end, and False when closed.

        Counts intervals instead of time, so that a process that was stopped does not attribute its own pause to the
        other process.
        """
        return await run_unless(self.closed, self._silence(interval_seconds, heartbeats))

    async def _silence(self, interval_seconds: float, heartbeats: int) -> None:
        silent = 0
        while silent < heartbeats:
            read_count = self.read_count
            self.send(self._heartbeat)
            await asyncio.sleep(interval_seconds)
            silent = silent + 1 if self.read_count == read_count else 0

    def _apply_message(self, message: Received | None) -> None:
        if message is None:
            self.abort("the other process has ended")
        else:
            self._apply(message)
