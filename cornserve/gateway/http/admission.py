"""Limits on the requests in flight and on the memory of their bodies. Requests beyond a limit receive a 429."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.large_work import LargeWork
from cornserve.limits import MIB, Limits


class RequestAdmission(Collector):
    """Counts the requests in flight and the bytes of their bodies, and exports both as metrics."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.large_work = LargeWork()
        self._max_bytes = self.limits.bodies_mib * MIB
        self._apps: Counter[str] = Counter()
        self.in_flight = 0
        self.body_bytes = 0

    def check_in_flight(self) -> None:
        """Raises a 429 if the limit of requests in flight is reached."""
        if self.in_flight >= self.limits.in_flight:
            raise self._overloaded(f"{self.in_flight} requests are in flight", "in-flight")

    def start_request(self) -> None:
        """Counts a request until `finish_request`."""
        self.check_in_flight()
        self.in_flight += 1

    def finish_request(self) -> None:
        self.in_flight -= 1

    def start_app_request(self, app: str) -> None:
        """Counts a request to an app until `finish_app_request`."""
        if self._apps[app] >= self.limits.in_flight_per_app:
            raise self._overloaded(f"{self._apps[app]} requests to {app!r} are in flight", "in-flight-per-app")
        self._apps[app] += 1

    def finish_app_request(self, app: str) -> None:
        self._apps[app] -= 1
        if not self._apps[app]:
            del self._apps[app]

    def reserve_bytes(self, size: int) -> None:
        if size and self.body_bytes + size > self._max_bytes:  # requests without a body are not limited
            raise self._overloaded(f"bodies of {self.body_bytes / MIB:.1f} MiB are in flight", "bodies-mib")
        self.body_bytes += size

    def body_too_large(self, size: int) -> ApiError:
        """Returns a 413 for a body of at least `size` bytes."""
        message = f"the body has at least {size} bytes ({self.limits.hint('body-mib')})"
        return ApiError(413, message, code="too_large")

    def text_too_large(self, size: int) -> ApiError:
        """Returns a 413 for a body of `size` bytes whose text is too large."""
        message = f"the body has {size} bytes, most of them outside of images ({self.limits.hint('text-mib')})"
        return ApiError(413, message, code="too_large")

    def collect(self) -> Iterator[Metric]:
        in_flight = "Requests that count toward the limit of requests in flight."
        bodies = "Bytes of request bodies in flight, of images fetched for them, and of large unsent responses."
        yield GaugeMetricFamily("cornserve_gateway_http_requests_in_flight", in_flight, self.in_flight)
        yield GaugeMetricFamily("cornserve_gateway_body_bytes", bodies, self.body_bytes)

    def _overloaded(self, load: str, limit: str) -> ApiError:
        message = f"the gateway is full: {load} ({self.limits.hint(limit)}); try again later"
        return ApiError(429, message, code="overloaded")


class MemoryReservation:
    """The memory that one request uses. It counts until it is released."""

    __slots__ = ("admission", "size")

    def __init__(self, admission: RequestAdmission) -> None:
        self.admission = admission
        self.size = 0

    def reserve(self, size: int) -> None:
        """Raises a 429 if `size` more bytes would exceed the limit."""
        self.admission.reserve_bytes(size)
        self.size += size

    def add(self, size: int) -> None:
        """Counts memory that is already in use, even beyond the limit."""
        self.admission.body_bytes += size
        self.size += size

    def release(self) -> None:
        self.admission.body_bytes -= self.size
        self.size = 0
