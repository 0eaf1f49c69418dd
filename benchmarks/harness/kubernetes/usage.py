"""The costs of Cornserve's processes in a phase of a benchmark: CPU time, memory, requests to the API server."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.harness.processes import resident_mib


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    cpu_seconds: float
    """User and system time of the process and of all its descendants, including ended ones."""
    memory_mib: float
    """Resident memory of the process at the end of the phase."""
    descendants_mib: float
    """Memory of its descendants at the end of the phase, with their parts of shared memory."""


@dataclass(frozen=True, slots=True)
class PhaseUsage:
    phase: str
    seconds: float
    processes: Mapping[str, ProcessUsage]
    requests: Mapping[str, int]
    """The number of requests to the API server by `USER VERB RESOURCE`."""

    def count_requests(self, user: str) -> int:
        return sum(count for request, count in self.requests.items() if request.startswith(f"{user} "))


class UsageMeter:
    """Measures phases, one after the other.

    Args:
        processes: process ids by name.
        audit_log: the log of the API server.
    """

    def __init__(self, processes: Mapping[str, int], audit_log: Path) -> None:
        self._processes = processes
        self._audit_log = audit_log
        self.start()

    def start(self) -> None:
        """Starts a phase."""
        self._started = time.monotonic()
        self._offset = self._audit_log.stat().st_size if self._audit_log.exists() else 0
        self._cpu = {name: _tree_cpu_seconds(pid) for name, pid in self._processes.items()}

    def stop(self, phase: str) -> PhaseUsage:
        """Ends the phase."""
        seconds = time.monotonic() - self._started
        usage = {
            name: ProcessUsage(
                round(_tree_cpu_seconds(pid) - self._cpu[name], 2), resident_mib(pid), _descendants_mib(pid)
            )
            for name, pid in self._processes.items()
        }
        return PhaseUsage(phase, round(seconds, 2), usage, dict(Counter(self._requests()).most_common()))

    def _requests(self) -> Iterator[str]:
        """Yields the requests of the phase. A watch counts when it starts."""
        with self._audit_log.open() as log:
            log.seek(self._offset)
            for line in log:
                event = json.loads(line)
                verb, reference = event["verb"], event.get("objectRef") or {"resource": event["requestURI"]}
                if event["stage"] == ("ResponseStarted" if verb == "watch" else "ResponseComplete"):
                    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
                    yield f"{event['user']['username']} {verb} {resource}"


def _tree_cpu_seconds(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:4]) for each in (process, *process.children(recursive=True)))


def _descendants_mib(pid: int) -> float:
    children = psutil.Process(pid).children(recursive=True)
    return round(sum(child.memory_full_info().pss for child in children) / 2**20, 1)
