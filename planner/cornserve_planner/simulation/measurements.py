"""The measurements of a simulation: a few numbers for each request, and statistics of them with intervals."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.admission import Refusal
from cornserve_policies.path_table import CellPath

BATCHES = 10
"""Batches of requests in sequence whose statistics are compared."""

T_QUANTILE = 2.262
"""The 97.5 % quantile of Student's t distribution with `BATCHES - 1` degrees of freedom."""

LEAST_PER_BATCH = 20
"""The least number of requests in a batch with which a statistic has an interval."""

PERCENTILES = (50, 90, 95, 99)


@dataclass(slots=True)
class LatencyColumns:
    """Latencies in seconds, and the arrival times of their requests, in the order of their ends."""

    arrivals: array[float] = field(default_factory=lambda: array("d"))
    seconds: array[float] = field(default_factory=lambda: array("d"))

    def add(self, arrival: float, seconds: float) -> None:
        self.arrivals.append(arrival)
        self.seconds.append(seconds)

    def in_order(self) -> Any:
        """Returns the latencies in the order of arrival, as a numpy array."""
        return np.frombuffer(self.seconds)[np.argsort(np.frombuffer(self.arrivals), kind="stable")]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A value with its 95 % interval by batch means. Too few requests have no interval."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class LatencyStatistics:
    requests: int
    mean: Statistic
    percentiles: dict[int, Statistic]


class SimulationMeasurements:
    """Listens to a simulation. The latencies are those of completed requests."""

    def __init__(self) -> None:
        self.events: EventQueue
        self.latencies: dict[str, dict[str, LatencyColumns]] = {}
        """The latencies by request type, and by `ttft`, `tbt` and `e2e`."""
        self.stages: dict[str, LatencyColumns] = {}
        """The times from the arrival of an invocation's inputs to its end, by executor."""
        self.ways: Counter[CellPath] = Counter()
        """Completed requests by type, cell and path."""
        self.refused: Counter[str] = Counter()
        """Refused requests, by the target that they would have missed, or `size`."""
        self.completed = self.failed = 0
        self.failed_firsts: array[float] = array("d")
        """The seconds until the first output of requests that have failed after it."""
        self.end = 0.0
        """The time at which the last request completed, failed or was refused."""

    def request_refused(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        self.refused["size" if refusal is None else refusal.target] += 1
        self.end = self.events.now

    def request_failed(self, run: RequestRun) -> None:
        self.failed += 1
        self.end = self.events.now
        if run.first >= 0:
            self.failed_firsts.append(run.first - run.request.arrival)

    def stage_ended(self, invocation: StageInvocation) -> None:
        executor = invocation.stage.executor
        if executor not in self.stages:
            self.stages[executor] = LatencyColumns()
        self.stages[executor].add(invocation.run.request.arrival, self.events.now - invocation.began)

    def request_ended(self, run: RequestRun) -> None:
        now, request, way = self.events.now, run.request, run.way
        self.completed += 1
        self.end = now
        self.ways[way] += 1
        columns = self.latencies.get(way.request_type)
        if columns is None:
            columns = self.latencies[way.request_type] = {name: LatencyColumns() for name in ("ttft", "tbt", "e2e")}
        columns["ttft"].add(request.arrival, run.first - request.arrival)
        columns["e2e"].add(request.arrival, now - request.arrival)
        if run.last_token > run.first and request.output is not None and request.output > 1:
            columns["tbt"].add(request.arrival, (run.last_token - run.first) / (request.output - 1))


def summarize(columns: LatencyColumns) -> LatencyStatistics | None:
    """Returns statistics with intervals. None without requests."""
    if not columns.seconds:
        return None
    ordered = columns.in_order()
    size = len(ordered) // BATCHES
    batches = ordered[: size * BATCHES].reshape(BATCHES, size) if size >= LEAST_PER_BATCH else None
    return LatencyStatistics(
        len(ordered),
        _statistic(float(ordered.mean()), None if batches is None else batches.mean(axis=1)),
        {
            percentile: _statistic(
                float(np.percentile(ordered, percentile)),
                None if batches is None else np.percentile(batches, percentile, axis=1),
            )
            for percentile in PERCENTILES
        },
    )


def met_share(columns: LatencyColumns, target: float) -> float | None:
    """Returns the share of latencies within a target. None without any."""
    return float((np.frombuffer(columns.seconds) <= target).mean()) if columns.seconds else None


def _statistic(value: float, of_batches: Any) -> Statistic:
    if of_batches is None:
        return Statistic(value)
    half = T_QUANTILE * float(of_batches.std(ddof=1)) / BATCHES**0.5
    return Statistic(value, max(0.0, value - half), value + half)
