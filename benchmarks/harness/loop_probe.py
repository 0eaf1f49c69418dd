"""Runs a gateway and records when its event loop is blocked: `python -m benchmarks.harness.loop_probe FILE …`.

Each line of FILE is a `Stall`: a timer that fired late. The other options are those of the gateway.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import uvloop
from pydantic_core import from_json, to_json

INTERVAL_SECONDS = 0.001

MIN_STALL_SECONDS = 0.002
"""Shorter delays are not recorded."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which the event loop ran no timer."""

    ended: float
    """Seconds of the machine's monotonic clock."""
    seconds: float
    cpu_seconds: float
    """CPU time of the event loop's thread. The rest is time in which the thread waited for a core or for the GIL."""


def read_stalls(file: Path) -> list[Stall]:
    """Returns the stalls that a probe has recorded so far."""
    *lines, _ = file.read_bytes().split(b"\n") if file.exists() else [b""]
    return [Stall(**from_json(line)) for line in lines]


async def _record_stalls(file: IO[bytes]) -> None:
    while True:
        started, cpu = time.monotonic(), time.thread_time()
        await asyncio.sleep(INTERVAL_SECONDS)
        ended = time.monotonic()
        stall = Stall(ended, ended - started - INTERVAL_SECONDS, time.thread_time() - cpu)
        if stall.seconds >= MIN_STALL_SECONDS:
            file.write(to_json(asdict(stall)) + b"\n")


async def _probed(serving: Coroutine[Any, Any, Any], file: IO[bytes]) -> Any:
    probe = asyncio.create_task(_record_stalls(file))
    try:
        return await serving
    finally:
        probe.cancel()


def main() -> None:
    run = uvloop.run
    with Path(sys.argv.pop(1)).open("ab", buffering=0) as file:
        uvloop.run = lambda serving: run(_probed(serving, file))  # type: ignore[assignment, misc]
        runpy.run_module("cornserve.gateway", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
