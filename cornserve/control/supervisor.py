"""Runs a local instance: gateway and controller as processes of their own, restarted when they die.

The instance ends as a whole. Executors outlive the controller, so that a new one can adopt them; therefore whoever
ends the instance sweeps them away. Apps stay in the store, and the next instance serves them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from cornserve.control.child import Child, ChildError, Program, rotate
from cornserve.control.sweep import sweep_executors
from cornserve.home import Home
from cornserve.instance import HomeTakenError, Instance, sole_use

READY_SECONDS = 60.0

PATIENCE_SECONDS = 5.0
"""How long the children of an instance that was killed may take to end."""

Report = Callable[[str], None]


class StartError(Exception):
    """The instance cannot run; the message is one for people."""


@dataclass(frozen=True, slots=True)
class Options:
    home: Home
    host: str
    port: int
    """0: any free one."""
    gpus: int | None = None
    """By default, all."""
    cpu_slots: int | None = None
    """Executors that run on CPUs at once; by default, the launcher's choice."""


async def supervise(options: Options, *, on_ready: Callable[[Instance], None], report: Report) -> None:
    """Runs an instance until SIGINT, SIGTERM or SIGHUP; a second signal ends it without grace.

    Raises:
        StartError: it cannot run here; nothing is left behind.
    """
    home = options.home
    with _the_home(home) as lock, _signals() as stop:
        port = _free_port(options.host, options.port)
        instance = Instance.of_this_process(_url(options.host, port))
        for log in (home.logs / "gateway.log", home.logs / "controller.log"):
            rotate(log)
        instance.record(home)
        try:
            await _serve([Child(p, inherited=(lock,), report=report) for p in _programs(options, port)], instance, stop, on_ready, report)
        finally:
            await stop.or_hurry(sweep_executors(home, report))
            home.instance.unlink(missing_ok=True)


async def _serve(
    children: list[Child], instance: Instance, stop: _Stop, on_ready: Callable[[Instance], None], report: Report
) -> None:
    for child in children:
        stop.on_hurry(child.kill)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(child.run()) for child in children]
            if await stop.unless(_until_ready(instance.url)):
                on_ready(instance)
                await stop.wait()
            report("stopping")
            for task in running:
                task.cancel()
    except* (ChildError, TimeoutError) as errors:
        raise StartError(str(errors.exceptions[0])) from None


def _programs(options: Options, port: int) -> list[Program]:
    home = options.home
    limits = [
        argument
        for flag, limit in (("--gpus", options.gpus), ("--cpu-slots", options.cpu_slots))
        if limit is not None
        for argument in (flag, str(limit))
    ]
    python = [sys.executable, "-m"]
    gateway = ["cornserve.gateway", "--home", str(home.path), "--host", options.host, "--port", str(port)]
    controller = ["cornserve.control", "--home", str(home.path), *limits]
    return [
        Program("gateway", [*python, *gateway], home.logs / "gateway.log"),
        Program("controller", [*python, *controller], home.logs / "controller.log"),
    ]
