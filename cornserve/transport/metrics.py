"""Prometheus metrics of a process's transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cornserve.observe.histogram import Histogram
from cornserve.transport.memory.admission import SlabAdmission
from cornserve.transport.memory.segment import PAGE
from cornserve.transport.pull.selection import PullerSelection

HOP_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

SAME_PROCESS, SAME_NODE, PULLED = TRANSFER_KINDS = ("same_process", "same_node", "pulled")


class TransportMetrics:
    def __init__(self, admission: SlabAdmission, pullers: PullerSelection) -> None:
        self._admission = admission
        self._pullers = pullers
        self._received_bytes: Counter[str] = Counter()
        self._hop_seconds = {kind: Histogram(HOP_SECONDS) for kind in TRANSFER_KINDS}
        self._lookups: Counter[bool] = Counter()
        self.sent_bytes = 0
        self.lost = 0
        self.expired_leases = 0

    def record_received(self, kind: str, nbytes: int, seconds: float) -> None:
        """Counts a tensor that became readable `seconds` after it was published and subscribed to."""
        self._received_bytes[kind] += nbytes
        self._hop_seconds[kind].observe(seconds)

    def record_lookup(self, *, is_hit: bool) -> None:
        """Counts a lookup in the content cache."""
        self._lookups[is_hit] += 1

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics. Can run in any thread."""
        yield self._slab_bytes()
        resident = "Memory that the slab has taken, with its table of generations."
        resident_bytes = self._admission.blocks.slab.resident_bytes
        yield GaugeMetricFamily("cornserve_transport_slab_resident_bytes", resident, value=resident_bytes)
        failures = "Times that the slab could not take more memory."
        yield CounterMetricFamily(
            "cornserve_transport_slab_growth_failures", failures, value=self._admission.growth.failures
        )
        private = "1 if the slab could not be created in shared memory, so that other processes pull its tensors."
        is_private = self._admission.blocks.slab.is_private
        yield GaugeMetricFamily("cornserve_transport_slab_private", private, value=int(is_private))
        waiting = "Tensors that wait for space in the slab."
        yield GaugeMetricFamily("cornserve_transport_waiting_tensors", waiting, value=self._admission.waiting)
        waits = HistogramMetricFamily("cornserve_transport_wait_seconds", "Waiting time of tensors that had to wait.")
        self._admission.wait_seconds.add_to(waits)
        yield waits
        yield from self._received()
        yield from self._protocols()
        sent = "Bytes of tensors that other nodes have pulled."
        yield CounterMetricFamily("cornserve_transport_sent_bytes", sent, value=self.sent_bytes)
        lost = "Subscribed tensors that were lost."
        yield CounterMetricFamily("cornserve_transport_lost_tensors", lost, value=self.lost)
        expired = "Consuming processes whose leases have expired."
        yield CounterMetricFamily("cornserve_transport_expired_leases", expired, value=self.expired_leases)
        cache = CounterMetricFamily(
            "cornserve_transport_cache_lookups", "Lookups in the content cache.", labels=["result"]
        )
        cache.add_metric(["hit"], self._lookups[True])
        cache.add_metric(["miss"], self._lookups[False])
        yield cache

    def _slab_bytes(self) -> Metric:
        regions = (self._admission.common, self._admission.reserve)
        slab = GaugeMetricFamily("cornserve_transport_slab_bytes", "Limit of the slab, by its use.", labels=["state"])
        slab.add_metric(["held"], PAGE * sum(region.held_pages for region in regions))
        slab.add_metric(["cached"], PAGE * sum(region.idle_pages for region in regions))
        slab.add_metric(["free"], PAGE * sum(region.allocator.free_pages for region in regions))
        slab.add_metric(["untaken"], PAGE * sum(region.untaken.free_pages for region in regions))
        return slab

    def _protocols(self) -> Iterator[Metric]:
        offered = "1 for each protocol by which this process can pull tensors from other nodes."
        protocols = GaugeMetricFamily("cornserve_transport_protocol", offered, labels=["protocol"])
        bytes_help = "Bytes of tensors that were pulled from other nodes, by protocol."
        pulled = CounterMetricFamily("cornserve_transport_pulled_bytes", bytes_help, labels=["protocol"])
        failures_help = "Pulls that failed, so that another protocol was used, or the tensor was lost."
        failures = CounterMetricFamily("cornserve_transport_pull_failures", failures_help, labels=["protocol"])
        for name in self._pullers.protocols:
            protocols.add_metric([name], 1)
            pulled.add_metric([name], self._pullers.pulled_bytes[name])
            failures.add_metric([name], self._pullers.failures[name])
        yield from (protocols, pulled, failures)

    def _received(self) -> Iterator[Metric]:
        received = CounterMetricFamily(
            "cornserve_transport_received_bytes", "Bytes of received tensors, by kind of transfer.", labels=["kind"]
        )
        hops = HistogramMetricFamily(
            "cornserve_transport_hop_seconds",
            "Time from publishing a tensor, or subscribing if later, until it is readable.",
            labels=["kind"],
        )
        for kind in TRANSFER_KINDS:
            received.add_metric([kind], self._received_bytes[kind])
            self._hop_seconds[kind].add_to(hops, [kind])
        yield received
        yield hops
