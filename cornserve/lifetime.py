"""How Cornserve's own processes end: by a signal, or with the supervisor that started them.

A supervisor gives each child a pipe as its standard input and never writes to it. However the supervisor dies, the
pipe ends, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys


async def told_to_stop() -> None:
    """Returns at SIGTERM or SIGINT, or when the pipe that is standard input ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        loop.add_reader(sys.stdin.fileno(), stop.set)
    await stop.wait()
    loop.remove_reader(sys.stdin.fileno())
