"""What is counted of each replica, and its metrics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.observe.histogram import Histogram

KEPT_SECONDS = 600.0
"""How long a replica that is gone is still told of: its last figures, the deaths of invocations among them, have to be
scraped."""

_LABELS = ["group", "replica"]


@dataclass(slots=True)
class ReplicaTally:
    """What has become of this gateway's invocations at one replica."""

    group: str = ""
    replica: str = ""
    """Its id, or its endpoint where that is not known."""
    gone_at: float | None = None
    """When the routes have named it last, by the monotonic clock. None: they do."""
    running: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    seconds: Histogram = field(default_factory=Histogram)
    dispatch_seconds: Histogram = field(default_factory=Histogram)

    def begin(self) -> None:
        self.running += 1

    def end(self, code: str, seconds: float) -> None:
        self.running -= 1
        self.codes[code] += 1
        self.seconds.observe(seconds)


class Tallies:
    """By endpoint, those of the replicas that the routes name, or have named a little while ago."""

    def __init__(self) -> None:
        self._tallies: dict[str, ReplicaTally] = {}

    def __iter__(self) -> Iterator[ReplicaTally]:
        return iter([*self._tallies.values()])

    def of(self, endpoint: str) -> ReplicaTally:
        return self._tallies.setdefault(endpoint, ReplicaTally(replica=endpoint))

    def update(self, endpoints: Mapping[str, Sequence[str]], ids: Mapping[str, str]) -> None:
        """Takes what the routes say now.

        Args:
            endpoints: by group.
            ids: of the replicas, by endpoint.
        """
        now = time.monotonic()
        named = {endpoint: group for group, some in endpoints.items() for endpoint in some}
        for endpoint, tally in self._tallies.items():
            tally.gone_at = None if endpoint in named else tally.gone_at or now
        for endpoint, group in named.items():
            known, id = self._tallies.get(endpoint), ids.get(endpoint, endpoint)
            if known is None or id not in (known.replica, endpoint):  # another may have got its port
                self._tallies[endpoint] = ReplicaTally(group, id)
        self._tallies = {
            endpoint: tally
            for endpoint, tally in self._tallies.items()
            if tally.running or tally.gone_at is None or now - tally.gone_at < KEPT_SECONDS
        }


class ReplicaMetrics(Collector):
    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies

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
            "How long the first command of a write waited until it was written to the connection.",
            labels=_LABELS,
        )
        for tally in self._tallies:
            labels = [tally.group, tally.replica]
            if tally.running or tally.gone_at is None:
                running.add_metric(labels, tally.running)
            for code, count in tally.codes.items():
                ended.add_metric([*labels, code], count)
            tally.seconds.add_to(seconds, labels)
            tally.dispatch_seconds.add_to(dispatch, labels)
        yield from (running, ended, seconds, dispatch)
