"""Stopping Cornserve's processes: by a signal, or when the supervisor that started them ends.

A supervisor gives each child a pipe as its standard input and never writes to it. The pipe closes however the
supervisor ends, so that no child process is left behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys


def stop_signals() -> asyncio.Event:
    """Returns an event that is set on SIGTERM, SIGINT, or when standard input is a pipe and closes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    pipe = sys.stdin.fileno()

    def on_pipe_closed() -> None:
        loop.remove_reader(pipe)
        stop.set()

    if stat.S_ISFIFO(os.fstat(pipe).st_mode):
        loop.add_reader(pipe, on_pipe_closed)
    return stop
