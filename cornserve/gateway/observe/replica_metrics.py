"""What is counted of each replica, and its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.observe.histogram import Histogram

if TYPE_CHECKING:
    from cornserve.gateway.request.replicas import Replicas

_LABELS = ["group", "replica"]


@dataclass(frozen=True, slots=True)
class ReplicaTally:
    """What has become of this gateway's invocations at one replica."""

    codes: Counter[str] = field(default_factory=Counter)
    seconds: Histogram = field(default_factory=Histogram)
    dispatch_seconds: Histogram = field(default_factory=Histogram)

    def end(self, code: str, seconds: float) -> None:
        self.codes[code] += 1
        self.seconds.observe(seconds)


class ReplicaMetrics(Collector):
    """Args:
    ids: the replicas' ids, by endpoint.
    """

    def __init__(self, replicas: Replicas, ids: Callable[[], Mapping[str, str]]) -> None:
        self._replicas = replicas
        self._ids = ids

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily(
            "cornserve_gateway_invocations_running", "Invocations that a replica has not ended yet.", labels=_LABELS
        )
        ended = CounterMetricFamily(
            "cornserve_gateway_invocations",
            "Invocations that ended, by code. ABORTED: the executor died, or the connection to it.",
            labels=[*_LABELS, "code"],
        )
        seconds = HistogramMetricFamily(
            "cornserve_gateway_invocation_seconds", "From sending an invocation to its end.", labels=_LABELS
        )
        dispatch = HistogramMetricFamily(
            "cornserve_gateway_dispatch_seconds",
            "How long the first command of a frame waited until the connection took the frame.",
            labels=_LABELS,
        )
        ids = self._ids()
        for group, endpoint, in_flight, tally in self._replicas.tallies():
            labels = [group, ids.get(endpoint, endpoint)]
            running.add_metric(labels, in_flight)
            for code, count in tally.codes.items():
                ended.add_metric([*labels, code], count)
            tally.seconds.add_to(seconds, labels)
            tally.dispatch_seconds.add_to(dispatch, labels)
        yield from (running, ended, seconds, dispatch)
