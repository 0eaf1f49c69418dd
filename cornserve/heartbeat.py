"""Reports to the supervisor that the event loop of this process runs, and whether the process is ready.

The supervisor passes the write end of a pipe to each of its processes. The event loop itself writes to it, so that the
heartbeats stop when the loop is blocked. On `DUMP_SIGNAL`, the process then writes the stacks of its threads to its
standard error.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from cornserve.ticks import next_tick

HEARTBEAT_VARIABLE = "CORNSERVE_HEARTBEAT"
"""The number of the pipe's file descriptor, in the environment of a process that has a supervisor."""

BEAT_SECONDS = 1.0
"""The time between two heartbeats of a ready process."""

STARTING_BEAT_SECONDS = 0.05
"""The time between two heartbeats of a process that is not ready."""

DUMP_SIGNAL = signal.SIGUSR1

BEAT = b"."
READY_BEAT = b"+"


def start_heartbeats(is_ready: Callable[[], bool]) -> None:
    """Sends heartbeats from the running event loop until it ends, if the process has a supervisor."""
    number = os.environ.pop(HEARTBEAT_VARIABLE, None)
    if number is None:
        return
    pipe = int(number)
    os.set_inheritable(pipe, False)
    os.set_blocking(pipe, False)
    faulthandler.register(DUMP_SIGNAL, all_threads=True)
    loop = asyncio.get_running_loop()

    def beat() -> None:
        ready = is_ready()
        with suppress(BlockingIOError, BrokenPipeError):  # The supervisor does not read, or has exited.
            os.write(pipe, READY_BEAT if ready else BEAT)
        loop.call_at(next_tick(BEAT_SECONDS if ready else STARTING_BEAT_SECONDS), beat)

    beat()
