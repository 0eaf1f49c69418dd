"""Measures what each group of tests costs: CPU time and peak memory of the worker and all that its tests start."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from scripts.process_tree import MemoryPeak, ProcessTable
from tests.costs.budgets import Cost

COLLECTION: Final = "collection"
"""The group for the work of a worker before its first test."""
_MIB: Final = 1024**2


class _Worker:
    def __init__(self, root: int) -> None:
        self.root = root
        self.cpu_seconds = 0.0
        self.peak = MemoryPeak()


class CostRecorder:
    """Records the costs of groups. A worker runs one group at a time."""

    def __init__(self, interval_seconds: float = 1) -> None:
        """Samples the memory every `interval_seconds`."""
        self.costs: dict[str, Cost] = {}
        self._interval = interval_seconds
        self._workers: dict[str, _Worker] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._sampling = threading.Thread(target=self._sample, name="memory-of-workers", daemon=True)
        self._sampling.start()

    def start(self, worker: str, subreaper: int) -> None:
        """Measures a worker. Its processes are a subreaper, given as its process id, and all below it."""
        with self._lock:
            self._workers[worker] = _Worker(subreaper)

    def end(self, worker: str, group: str) -> None:
        """Charges the group with the costs of the worker since the end of its previous group."""
        table = ProcessTable()
        with self._lock:
            measured = self._workers[worker]
            measured.peak.sample(table, measured.root)
            cpu_seconds = table.cpu_seconds(measured.root)
            self._charge(group, cpu_seconds - measured.cpu_seconds, measured.peak)
            measured.cpu_seconds, measured.peak = cpu_seconds, MemoryPeak()

    def stop(self) -> None:
        self._stopped.set()
        self._sampling.join()

    def _charge(self, group: str, cpu_seconds: float, peak: MemoryPeak) -> None:
        """A group that several workers run, as each collects the tests, has the highest of their costs."""
        before = self.costs.get(group, Cost(0, 0))
        self.costs[group] = Cost(
            max(before.cpu_seconds, round(cpu_seconds)), max(before.memory_mib, peak.memory.total // _MIB)
        )

    def _sample(self) -> None:
        while not self._stopped.wait(self._interval):
            table = ProcessTable()
            with self._lock:
                for worker in self._workers.values():
                    worker.peak.sample(table, worker.root)


def most_expensive(costs: Mapping[str, Cost], count: int) -> list[tuple[str, Cost]]:
    return sorted(costs.items(), key=lambda item: (-item[1].cpu_seconds, item[0]))[:count]
