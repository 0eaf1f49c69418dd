"""The progress of a roll-out, which must not stop for longer than its deadline."""

from __future__ import annotations

import asyncio


class RolloutProgress:
    """The time of the last progress of a roll-out, from its start or the start of this controller."""

    def __init__(self) -> None:
        self._ready = 0
        self.last_change = asyncio.get_running_loop().time()

    def observe(self, ready: int) -> None:
        """Takes another number of ready replicas for progress."""
        if ready != self._ready:
            self._ready = ready
            self.last_change = asyncio.get_running_loop().time()
