"""Keeps one process for each engine, from which its executors are forked."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points

from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.executor_environment import executor_environment
from cornserve.control.launcher.local.orphans import OrphanParent
from cornserve.control.launcher.local.warm_process import WarmProcess, WarmProcessError

log = logging.getLogger(__name__)

ENGINE_GROUP = "cornserve.engines"
"""The entry point group in which packages register, by the name of an executor, the function that imports its engine.
Executors with the same function share a process."""

KEEP_SECONDS = 300.0
"""The time for which a process is kept while no replica of its engine is wanted."""

RETRY_SECONDS = 600.0
"""The delay before a process that has failed is started again. Until then, executors start without it."""


@cache
def engines() -> dict[str, str]:
    """Returns the functions that import engines, by the name of an executor."""
    return {point.name: point.value for point in entry_points(group=ENGINE_GROUP)}


def find_engine(executor: str) -> str | None:
    """Returns the function that imports the executor's engine, as `module:function`."""
    return engines().get(executor)


class WarmProcesses:
    """The processes of a launcher. It starts each before the first executor that needs its engine."""

    def __init__(self, device_slots: DeviceSlots) -> None:
        self._device_slots = device_slots
        self._running: dict[str, WarmProcess] = {}
        """The processes by engine."""
        self._wanted: Counter[str] = Counter()
        """The number of wanted replicas of each engine."""
        self._retry_times: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._orphan_parent = OrphanParent()

    @contextmanager
    def keep(self, executor: str) -> Iterator[None]:
        """Keeps the process of the executor's engine, if it runs, until `KEEP_SECONDS` after the block."""
        engine = find_engine(executor)
        if engine is None:
            yield
            return
        self._wanted[engine] += 1
        if timer := self._timers.pop(engine, None):
            timer.cancel()
        try:
            yield
        finally:
            self._wanted[engine] -= 1
            if not self._wanted[engine]:
                loop = asyncio.get_running_loop()
                self._timers[engine] = loop.call_later(KEEP_SECONDS, self._end, engine)

    async def find(
        self, executor: str, slots: tuple[str, ...], report_progress: Callable[[str], None]
    ) -> WarmProcess | None:
        """Returns a process from which the executor can be forked, after its imports.

        Returns None if the executor must be started without one: it has no engine, it has GPUs or its own cores, which
        libraries read while they are imported, or the process has failed.
        """
        engine = find_engine(executor)
        has_gpus = self._device_slots.environment(slots) != self._device_slots.environment(())
        if engine is None or has_gpus or self._device_slots.cores(slots):
            return None
        now = asyncio.get_running_loop().time()
        if engine in self._running and self._running[engine].has_ended:
            self._end(engine)
        if engine not in self._running:
            if now < self._retry_times.get(engine, now):
                return None
            self._start(engine)
        warm = self._running[engine]
        if warm.is_importing:
            report_progress("importing its engine")
        try:
            await warm.wait_imports()
        except WarmProcessError as error:
            self.discard(warm, error)
            return None
        return warm

    def discard(self, warm: WarmProcess, error: WarmProcessError) -> None:
        """Ends a process that has failed."""
        if self._running.get(warm.engine) is warm:
            log.warning("executors start without the process that has imported %s: %s", warm.engine, error)
            self._retry_times[warm.engine] = asyncio.get_running_loop().time() + RETRY_SECONDS
            self._end(warm.engine)

    def _start(self, engine: str) -> None:
        self._orphan_parent.adopt()  # Executors get another parent while they are forked.
        self._running[engine] = WarmProcess(engine, executor_environment(self._device_slots))

    def _end(self, engine: str) -> None:
        if warm := self._running.pop(engine, None):
            warm.close()

    def close(self) -> None:
        """Ends all processes."""
        for timer in self._timers.values():
            timer.cancel()
        for engine in list(self._running):
            self._end(engine)
        self._orphan_parent.close()
