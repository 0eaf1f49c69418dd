"""How many requests are served at once, and how much memory their bodies take. What is too much is refused at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cornserve.gateway.errors import ApiError
from cornserve.limits import MIB, Limits


class Admission(Collector):
    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._max_bytes = self.limits.bodies_mib * MIB
        self._apps: Counter[str] = Counter()
        self.in_flight = 0
        self.body_bytes = 0

    def check(self) -> None:
        """Refuses before anything is read."""
        if self.in_flight >= self.limits.in_flight:
            raise self._refusal(f"{self.in_flight} requests are in flight", "in-flight")

    def begin(self) -> None:
        """Counts a request until `end`."""
        self.check()
        self.in_flight += 1

    def end(self) -> None:
        self.in_flight -= 1

    def enter(self, app: str) -> None:
        """Counts a request to an app until `leave`."""
        if self._apps[app] >= self.limits.in_flight_per_app:
            raise self._refusal(f"{self._apps[app]} requests to {app!r} are in flight", "in-flight-per-app")
        self._apps[app] += 1

    def leave(self, app: str) -> None:
        self._apps[app] -= 1
        if not self._apps[app]:
            del self._apps[app]

    def take_bytes(self, size: int) -> None:
        if size and self.body_bytes + size > self._max_bytes:  # what has no body goes on
            raise self._refusal(f"bodies of {self.body_bytes / MIB:.1f} MiB are in flight", "bodies-mib")
        self.body_bytes += size

    def give_bytes(self, size: int) -> None:
        self.body_bytes -= size

    def too_large(self, size: int) -> ApiError:
        """What is told whose body has, or will have, at least `size` bytes."""
        return ApiError(413, f"the body has {size} bytes or more ({self.limits.hint('body-mib')})", code="too_large")

    def collect(self) -> Iterator[Metric]:
        in_flight = "Requests that count for the limit."
        bodies = (
            "Bodies of requests that are received or served, what was fetched for them, large answers not yet read."
        )
        yield GaugeMetricFamily("cornserve_gateway_in_flight", in_flight, self.in_flight)
        yield GaugeMetricFamily("cornserve_gateway_body_bytes", bodies, self.body_bytes)

    def _refusal(self, load: str, limit: str) -> ApiError:
        message = f"the gateway is full: {load} ({self.limits.hint(limit)}); try again later"
        return ApiError(429, message, code="overloaded")


class Held:
    """Memory that one request takes: it counts until it is released."""

    __slots__ = ("_admission", "size")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.size = 0

    def take(self, size: int) -> None:
        """Raises a 429 if that is more than there is."""
        self._admission.take_bytes(size)
        self.size += size

    def count(self, size: int) -> None:
        """Of what is there anyway: it leaves less to others."""
        self._admission.body_bytes += size
        self.size += size

    def release(self) -> None:
        self._admission.give_bytes(self.size)
        self.size = 0
