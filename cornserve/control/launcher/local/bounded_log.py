"""Keeps the logs of the processes that we start from filling the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cornserve.control.launcher.local.threads import finish_in_thread
from cornserve.observe.log_file import bound

LOOK_SECONDS = 5.0


async def keep_bounded(log: Path) -> None:
    """Runs for ever."""
    while True:
        await finish_in_thread(bound, log)
        await asyncio.sleep(LOOK_SECONDS)
