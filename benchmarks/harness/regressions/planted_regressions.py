"""Regressions of 20 %: see `sitecustomize.py`."""

from __future__ import annotations

import atexit
import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARE = 0.2
WAKEUP_SECONDS = 1.2
"""The interval at which idle processes wake up in addition: three of them add more than a fifth of all wake-ups."""

_COMMITTED = Path(__file__).parents[2] / "guard.json"


class CpuTax:
    """Uses more CPU time: a share of that which the process and its ended children have used since the last call."""

    def __init__(self) -> None:
        self._paid = _cpu_seconds()

    def pay(self) -> None:
        _spin(SHARE * (_cpu_seconds() - self._paid))
        self._paid = _cpu_seconds()


def slow_gateway(module: Any) -> None:
    respond, tax = module.V1Router.__call__, CpuTax()

    async def slow(*arguments: Any) -> None:
        await respond(*arguments)
        tax.pay()

    module.V1Router.__call__ = slow


def slow_recording(module: Any) -> None:
    module.Recording.run = _slower(module.Recording.run)


def slow_hop(module: Any) -> None:
    """Copies a part of each tensor once more when it is published."""
    publish, share = module.Slot.publish, SHARE * _committed("hop of 4.5 MiB ÷ memcpy")
    scratch = bytearray(8 << 20)

    def slow(slot: Any, *arguments: Any) -> None:
        size = int(share * len(slot.buffer))
        memoryview(scratch)[:size] = slot.buffer[:size]
        publish(slot, *arguments)

    module.Slot.publish = slow


def slow_planner(module: Any) -> None:
    module.solve_cells = _slower(module.solve_cells)


def slow_import(module: Any) -> None:
    """The whole process becomes slower, since the figure is its CPU time."""
    atexit.register(lambda: _spin(SHARE * time.process_time()))


CHANGES: dict[str, Callable[[Any], None]] = {
    "gateway": slow_gateway,
    "record_replay": slow_recording,
    "tensors": slow_hop,
    "planner": slow_planner,
    "command_line": slow_import,
}
"""Changes the module of `sitecustomize.MODULES` after its import, by group."""


def enlarge_idle_process() -> None:
    """Uses more memory, and wakes up more often, in the gateway, the controller and the supervisor."""
    process = next((argument for argument in sys.orig_argv if argument in _IDLE_PROCESSES), None)
    if process is None:
        return
    row = _IDLE_PROCESSES[process]
    ballast = b"\1" * int(SHARE * _committed(row) * 2**20) if row else b""

    def wake_up() -> None:
        while ballast is not None:
            time.sleep(WAKEUP_SECONDS)

    threading.Thread(target=wake_up, daemon=True).start()


_IDLE_PROCESSES = {
    "cornserve.gateway": "memory of the gateway, MiB PSS",
    "cornserve.control": "memory of the controller, MiB PSS",
    "cornserve.cli": "",
}


def _slower(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any, **named: Any) -> Any:
        before = _cpu_seconds()
        try:
            return function(*arguments, **named)
        finally:
            _spin(SHARE * (_cpu_seconds() - before))

    return slow


def _spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _committed(row: str) -> float:
    from benchmarks.harness.machine import MachineInfo

    figure: float = json.loads(_COMMITTED.read_text())[MachineInfo.current().cpu][row]
    return figure
