"""What is counted of a process's transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cornserve.observe.histogram import Histogram
from cornserve.transport.admission import Admission
from cornserve.transport.content import Contents
from cornserve.transport.segment import PAGE

HOP_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

SAME_PROCESS, SAME_NODE, PULLED = WAYS = ("same_process", "same_node", "pulled")


class Meter:
    def __init__(self, admission: Admission, contents: Contents) -> None:
        self._admission = admission
        self._contents = contents
        self._received_bytes: Counter[str] = Counter()
        self._hop_seconds = {way: Histogram(HOP_SECONDS) for way in WAYS}
        self.sent_bytes = 0
        self.lost = 0
        self.expired_leases = 0

    def received(self, way: str, nbytes: int, seconds: float) -> None:
        """A tensor is readable, so long after it was published, or asked for if that was later."""
        self._received_bytes[way] += nbytes
        self._hop_seconds[way].observe(seconds)

    def metrics(self) -> Iterator[Metric]:
        """Called by the thread that serves them."""
        yield self._slab()
        waiting = "Tensors for which there is no room at the moment."
        yield GaugeMetricFamily("cornserve_transport_waiting", waiting, value=self._admission.waiting)
        waits = HistogramMetricFamily("cornserve_transport_wait_seconds", "How long tensors waited that had to.")
        self._admission.wait_seconds.add_to(waits)
        yield waits
        yield from self._transfers()
        found = CounterMetricFamily(
            "cornserve_transport_cache", "Tensors that were looked for by their content.", labels=["result"]
        )
        found.add_metric(["hit"], self._contents.hits)
        found.add_metric(["miss"], self._contents.misses)
        yield found

    def _slab(self) -> Metric:
        regions = (self._admission.common, self._admission.reserve)
        slab = GaugeMetricFamily(
            "cornserve_transport_slab_bytes", "The slab, by what it is used for.", labels=["state"]
        )
        slab.add_metric(["held"], PAGE * sum(region.held_pages for region in regions))
        slab.add_metric(["cached"], PAGE * sum(region.idle_pages for region in regions))
        slab.add_metric(["free"], PAGE * sum(region.allocator.free for region in regions))
        return slab

    def _transfers(self) -> Iterator[Metric]:
        received = CounterMetricFamily(
            "cornserve_transport_received_bytes", "Tensors that were received, by the way they took.", labels=["way"]
        )
        hops = HistogramMetricFamily(
            "cornserve_transport_hop_seconds",
            "From publishing a tensor, or asking for it if that was later, until it was readable at its consumer.",
            labels=["way"],
        )
        for way in WAYS:
            received.add_metric([way], self._received_bytes[way])
            self._hop_seconds[way].add_to(hops, [way])
        yield received
        yield hops
        sent = "Tensors that other nodes have pulled."
        yield CounterMetricFamily("cornserve_transport_sent_bytes", sent, value=self.sent_bytes)
        lost = "Tensors that were waited for or read, and lost."
        yield CounterMetricFamily("cornserve_transport_lost", lost, value=self.lost)
        expired = "Consuming processes that were silent for too long."
        yield CounterMetricFamily("cornserve_transport_expired_leases", expired, value=self.expired_leases)
