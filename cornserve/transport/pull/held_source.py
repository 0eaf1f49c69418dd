"""Keeps the memory of a tensor while it is sent, for a limited time if the consumer stops reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from cornserve.transport.pull.puller import PullSource

CHECK_SECONDS: Final = 1.0
"""A consumer receives the rest of a freed tensor in this time, or up to twice as much. Otherwise, its connection ends.
The consumer itself cancels a pull within `CANCEL_SECONDS`."""


class HeldSource:
    """A tensor that is sent. Its memory is not reused until `release`, even if the tensor is freed.

    Args:
        abort: ends the connection. Called if the tensor was freed and the consumer does not receive the rest in time.
    """

    def __init__(self, source: PullSource, abort: Callable[[], None]) -> None:
        self.view = source.view
        self.is_current = source.is_current
        self._abort = abort
        self._end_hold = source.hold_memory()
        self._schedule_check(was_current=True)

    def release(self) -> None:
        """Permits the reuse of the memory. Nothing reads it for the connection any more."""
        self._check_handle.cancel()
        self._end_hold()

    def _schedule_check(self, *, was_current: bool) -> None:
        self._check_handle = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check, was_current)

    def _check(self, was_current: bool) -> None:
        if was_current:
            self._schedule_check(was_current=self.is_current())
        else:
            self._abort()
