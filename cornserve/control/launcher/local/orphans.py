"""Makes the launcher the parent of executors whose parents have ended, and reaps other such descendants."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Final

import psutil

from cornserve.libc import LIBC, checked
from cornserve.process_id import is_zombie

CHECK_SECONDS = 30.0

_PR_SET_CHILD_SUBREAPER: Final = 36


class OrphanParent:
    """Makes this process the parent of descendants whose parents end, in place of the system's first process.

    It reaps exited children that still exist after `CHECK_SECONDS`: all other code reaps the processes that it has
    started at once, to get their exit status, and no code waits for an orphan.
    """

    def __init__(self) -> None:
        self._reaping: asyncio.Task[None] | None = None

    def adopt(self) -> None:
        """Begins to adopt orphans, until `close`. Idempotent."""
        if self._reaping is None:
            checked(LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
            self._reaping = asyncio.create_task(_reap_orphans())

    def close(self) -> None:
        if self._reaping is not None:
            self._reaping.cancel()
            checked(LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0))


async def _reap_orphans() -> None:
    seen: set[int] = set()
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        exited = await asyncio.to_thread(_exited_children)
        _reap(exited & seen)
        seen = exited


def _exited_children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if is_zombie(child)}


def _reap(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
