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


def stop_signals() -> asyncio.Event:
    """Is set at SIGTERM or SIGINT, or when the pipe that is standard input ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    pipe = sys.stdin.fileno()

    def on_end() -> None:
        loop.remove_reader(pipe)
        stop.set()

    if stat.S_ISFIFO(os.fstat(pipe).st_mode):
        loop.add_reader(pipe, on_end)
    return stop
