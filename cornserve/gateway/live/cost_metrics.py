"""The prices of replicas, as metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cornserve.gateway.live.cost_history import GroupUse


class CostMetrics(Collector):
    """
    Args:
        groups: the executor groups of all apps.
    """

    def __init__(self, groups: Mapping[str, GroupUse]) -> None:
        self._groups = groups

    def collect(self) -> Iterator[Metric]:
        dollars = GaugeMetricFamily(
            "cornserve_gateway_replica_dollars_per_hour",
            "Price of the GPUs or slots of one replica.",
            labels=["group"],
        )
        for key, group in self._groups.items():
            if group.dollars_per_hour is not None:
                dollars.add_metric([key], group.dollars_per_hour * group.gpus)
        yield dollars
