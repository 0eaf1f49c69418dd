"""Measurements of the invocations at each replica, and their metrics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.observe.histogram import Histogram

RETENTION_SECONDS = 600.0
"""The time that the series of a removed replica remain, so that Prometheus can scrape their last values."""

_LABELS = ["group", "replica"]


@dataclass(slots=True)
class ReplicaStats:
    """Counts this gateway's invocations at one replica."""

    group: str = ""
    replica: str = ""
    """The replica's id, or its endpoint if the id is unknown."""
    removed_at: float | None = None
    """Time when the replica disappeared from all routes, in seconds of the monotonic clock."""
    running: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    seconds: Histogram = field(default_factory=Histogram)
    dispatch_seconds: Histogram = field(default_factory=Histogram)

    def record_start(self) -> None:
        self.running += 1

    def record_end(self, code: str, seconds: float) -> None:
        self.running -= 1
        self.codes[code] += 1
        self.seconds.observe(seconds)


class ReplicaStatsRegistry:
    """The stats of all routed and recently removed replicas, by endpoint."""

    def __init__(self) -> None:
        self._stats: dict[str, ReplicaStats] = {}
        self._removed: set[str] = set()
        """The endpoints that no route contains."""

    def __iter__(self) -> Iterator[ReplicaStats]:
        self._delete_expired()
        return iter([*self._stats.values()])

    def for_endpoint(self, endpoint: str) -> ReplicaStats:
        if endpoint not in self._stats:
            self._stats[endpoint] = ReplicaStats(replica=endpoint)
            self.remove(endpoint)
        return self._stats[endpoint]

    def add(self, group: str, endpoint: str, id: str) -> None:
        """Adds a replica that a route contains. Does nothing if it is known."""
        known = self._stats.get(endpoint)
        if known is None or id not in (known.replica, endpoint):  # a new replica may reuse the port
            self._stats[endpoint] = ReplicaStats(group, id)
        else:
            known.removed_at = None
        self._removed.discard(endpoint)

    def remove(self, endpoint: str) -> None:
        """Deletes a replica that has left all routes after the retention."""
        self._stats[endpoint].removed_at = time.monotonic()
        self._removed.add(endpoint)
        self._delete_expired()

    def _delete_expired(self) -> None:
        start = time.monotonic() - RETENTION_SECONDS
        for endpoint in [*self._removed]:
            stats = self._stats[endpoint]
            if not stats.running and stats.removed_at is not None and stats.removed_at <= start:
                del self._stats[endpoint]
                self._removed.remove(endpoint)


class ReplicaMetrics(Collector):
    """
    Args:
        queue_lengths: returns the number of invocations that wait for capacity, by executor group. It can run in any
            thread.
    """

    def __init__(self, stats: ReplicaStatsRegistry, queue_lengths: Callable[[], Mapping[str, int]]) -> None:
        self._stats = stats
        self._queue_lengths = queue_lengths

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily(
            "cornserve_gateway_invocations_running", "Invocations running at a replica.", labels=_LABELS
        )
        ended = CounterMetricFamily(
            "cornserve_gateway_invocations",
            "Ended invocations, by code. ABORTED: the executor or the connection to it was lost.",
            labels=[*_LABELS, "code"],
        )
        seconds = HistogramMetricFamily(
            "cornserve_gateway_invocation_seconds", "Time from sending an invocation to its end.", labels=_LABELS
        )
        dispatch = HistogramMetricFamily(
            "cornserve_gateway_dispatch_seconds",
            "Time that the oldest command of a batch waited in the gateway before it was written to the connection.",
            labels=_LABELS,
        )
        for stats in self._stats:
            labels = [stats.group, stats.replica]
            if stats.running or stats.removed_at is None:
                running.add_metric(labels, stats.running)
            for code, count in stats.codes.items():
                ended.add_metric([*labels, code], count)
            stats.seconds.add_to(seconds, labels)
            stats.dispatch_seconds.add_to(dispatch, labels)
        yield from (running, ended, seconds, dispatch)
        queued = GaugeMetricFamily(
            "cornserve_gateway_queued_invocations",
            "Invocations with late binding that wait for capacity on a replica.",
            labels=["group"],
        )
        for group, count in self._queue_lengths().items():
            queued.add_metric([group], count)
        yield queued
