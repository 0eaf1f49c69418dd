"""Prometheus metrics of a gateway."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.running = Gauge(
            "cornserve_gateway_running", "Requests that are being served.", ["app"], registry=self.registry
        )
        self.requests = Counter(
            "cornserve_gateway_requests", "Requests, by app and HTTP status.", ["app", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "cornserve_gateway_request_seconds",
            "From a request's arrival to the end of its answer.",
            ["app"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.first_seconds = Histogram(
            "cornserve_gateway_time_to_first_chunk_seconds",
            "From a request's arrival to the first piece of a streamed answer (TTFT where it is a token).",
            ["app"],
            buckets=_SECONDS,
            registry=self.registry,
        )
