"""Bounds the size of the logs of the processes that Cornserve starts."""

from __future__ import annotations

from pathlib import Path

from cornserve.control.launcher.local.uninterrupted_thread import finish_in_thread
from cornserve.observe.log_file import copy_truncate
from cornserve.ticks import sleep_until_tick

CHECK_SECONDS = 5.0


async def keep_bounded(log: Path) -> None:
    """Checks the size of a log periodically. Runs until cancelled."""
    while True:
        await finish_in_thread(copy_truncate, log)
        await sleep_until_tick(CHECK_SECONDS)
