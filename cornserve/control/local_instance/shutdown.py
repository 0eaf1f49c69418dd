"""Stops an instance from another process, and cleans up after an instance that was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cornserve.control.local_instance.cleanup import delete_apps, stop_all_executors
from cornserve.control.local_instance.leftovers import end_leftover_processes, is_command, lock_holders
from cornserve.home import Home
from cornserve.instance import REWRITE_SECONDS, Instance, lock_home

STOP_SECONDS = 60.0
"""Timeout for an instance to finish the requests in flight and to stop its executors."""


@dataclass(frozen=True, slots=True)
class ShutdownResult:
    instance: Instance | None
    """The instance that ran, if any."""
    apps: list[str]
    """The names of the deleted apps."""


def shut_down(home: Home, *, keep_apps: bool, report: Callable[[str], None]) -> ShutdownResult:
    """Stops the instance of a home, or cleans up after one that was killed."""
    if not home.path.is_dir():
        return ShutdownResult(None, [])
    instance = _find_running(home)
    if instance is not None:
        report(f"stopping the instance at {instance.url}")
        _stop(instance, report)
    end_leftover_processes(home, report)
    with lock_home(home):
        return _clean_up(home, instance, keep_apps, report)


def _find_running(home: Home) -> Instance | None:
    """Returns the running instance. Waits until its supervisor has written a damaged instance file again."""
    deadline = time.monotonic() + REWRITE_SECONDS + 1
    while (instance := Instance.find_running(home)) is None and time.monotonic() < deadline:
        if not (home.instance.exists() and Instance.read(home) is None and any(map(is_command, lock_holders(home)))):
            break
        time.sleep(0.05)
    return instance


def _clean_up(home: Home, instance: Instance | None, keep_apps: bool, report: Callable[[str], None]) -> ShutdownResult:
    asyncio.run(stop_all_executors(home, report))
    apps = [] if keep_apps else asyncio.run(delete_apps(home))
    if not home.instance.is_dir():
        home.instance.unlink(missing_ok=True)
    return ShutdownResult(instance, apps)


def _stop(instance: Instance, report: Callable[[str], None]) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    with suppress(ProcessLookupError):
        os.kill(instance.pid, signal.SIGTERM)
        while instance.alive():
            if time.monotonic() > deadline:
                report(f"process {instance.pid} has not exited after {STOP_SECONDS:g} seconds and is killed")
                os.kill(instance.pid, signal.SIGKILL)
                return
            time.sleep(0.05)
