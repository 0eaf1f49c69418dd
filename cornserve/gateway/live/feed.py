"""Computes the live figures once for all who watch them, and streams them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel

from cornserve.app.costs import CostReport
from cornserve.app.live_figures import LIVE_PATH
from cornserve.app.overview import AppSeries, ReadGateways, RequestList, RequestTimeline
from cornserve.app.record import AppView
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.errors import ApiError
from cornserve.gateway.live.app_live import LIVE_SECONDS, app_live
from cornserve.gateway.live.app_view import app_view
from cornserve.gateway.live.cost_history import ComputeSeconds, CostHistory
from cornserve.gateway.live.cost_report import cost_report
from cornserve.gateway.live.figures import GatewayFigures, Sums, gateway_figures
from cornserve.gateway.live.overview import OVERVIEW_SECONDS, overview
from cornserve.gateway.live.peers import GatewayPeers
from cornserve.gateway.live.prometheus import LONGEST_HOURS, PrometheusError, PrometheusServer
from cornserve.gateway.live.replica_reports import ReplicaReport, read_reports
from cornserve.gateway.live.series import GatewaySteps, app_series
from cornserve.gateway.observe.app_changes import AppChanges
from cornserve.gateway.observe.app_history import FigureHistory, StateCounts
from cornserve.gateway.observe.request_records import merged_requests

MIN_SECONDS: Final = 1.0
"""Figures are computed at most this often."""

MAX_SECONDS: Final = 2.0
"""Streams have new figures at least this often."""

KEPT_SECONDS: Final = 30.0
"""The time for which figures are kept after they were read."""


LONGEST_COST_SECONDS: Final = 3600.0
"""The longest time for which another gateway returns the seconds of invocations."""


@dataclass(slots=True)
class _Computed:
    """The last figures as JSON. The lock lets others wait while they are computed."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    at: float = 0.0
    content: bytes = b""


@dataclass(slots=True)
class _Received:
    """The bytes that executor groups have received until a time, by kind of transfer."""

    at: float
    replicas: dict[str, ReplicaReport]


class FoundRequests(BaseModel):
    """The requests of a gateway with one id."""

    requests: list[RequestTimeline]


class LiveFeed:
    """The figures of all gateways, for the console and the command line."""

    def __init__(
        self,
        context: GatewayContext,
        changes: AppChanges,
        peers: GatewayPeers,
        prometheus: PrometheusServer | None = None,
    ) -> None:
        self._context = context
        self._changes = changes
        self._peers = peers
        self._prometheus = prometheus
        self.history = FigureHistory(lambda: context.metrics.apps, self._replicas)
        self.cost_history = CostHistory(
            context.apps.records, lambda: context.metrics.apps, context.prices, time.monotonic()
        )
        self._computed: dict[str, _Computed] = {}
        self._received: dict[str, _Received] = {}

    async def overview(self) -> bytes:
        return await self._compute("", self._overview)

    async def app(self, name: str) -> bytes:
        """Returns one app. Raises a 404 for an unknown one."""
        self._view(name)
        return await self._compute(name, lambda: self._app(name))

    async def series(self, name: str, hours: float = 1) -> AppSeries:
        """Returns the last hours of an app: more than one from Prometheus.

        Raises:
            ApiError: the app is unknown (404), the instance has no Prometheus (400), or it does not answer (503).
        """
        view = self._view(name)
        if hours > 1:
            return await self._long_series(view, hours)
        path = f"{LIVE_PATH}/series/{name}"
        found, gateways = await self._peers.read(path, {}, GatewaySteps, lambda: self.own_steps(name))
        return app_series(found, gateways, time.time(), 1 if self._prometheus is None else LONGEST_HOURS)

    async def follow_costs(self) -> None:
        """Reads the costs after each change of an app, until cancelled."""
        await self.cost_history.run(self._changes.broadcast)

    async def costs(self, seconds: float) -> CostReport:
        """Returns the costs of the last seconds, at most an hour."""
        self.cost_history.read(time.monotonic())
        window = self.cost_history.window(seconds)
        parameters = {"seconds": f"{min(max(window.seconds, 1.0), LONGEST_COST_SECONDS):g}"}
        found, gateways = await self._peers.read(
            f"{LIVE_PATH}/costs", parameters, ComputeSeconds, lambda: window.computed
        )
        return cost_report(window, found, gateways)

    def own_compute_seconds(self, seconds: float) -> ComputeSeconds:
        self.cost_history.read(time.monotonic())
        return self.cost_history.window(seconds).computed

    async def _long_series(self, view: AppView, hours: float) -> AppSeries:
        if self._prometheus is None:
            message = (
                "gateways keep the last hour: for more, run `cornserve up --prometheus URL`, or set the value "
                "gateway.prometheus of the chart"
            )
            raise ApiError(400, message, param="hours", code="no_prometheus")
        groups = [group.key for group in view.status.groups]
        try:
            return await self._prometheus.series(view.name, groups, hours, time.time())
        except PrometheusError as error:
            raise ApiError(503, str(error), code="prometheus_unavailable") from error

    async def requests(self, app: str | None) -> RequestList:
        """Returns the last, the slow and the failed requests of an app or of all apps."""
        parameters = {} if app is None else {"app": app}
        path = f"{LIVE_PATH}/requests"
        found, gateways = await self._peers.read(path, parameters, RequestList, lambda: self.own_requests(app))
        return merged_requests(found, gateways)

    async def request(self, id: str) -> RequestTimeline:
        """Returns the newest request with an id. Raises a 404 for one that no gateway that answers keeps."""
        path = f"{LIVE_PATH}/requests/timeline"
        found, gateways = await self._peers.read(path, {"id": id}, FoundRequests, lambda: self.own_request(id))
        requests = [request for each in found for request in each.requests]
        if not requests:
            message = "the request is unknown or not kept any more: `admin/v1/requests` lists those that are"
            if gateways.missing:
                missing = ", ".join(each.gateway for each in gateways.missing)
                message = f"the request is unknown to the gateways that answer; {missing} did not answer"
            raise ApiError(404, message, param="id", code="request_not_found")
        newest = max(requests, key=lambda request: request.time)
        return newest.model_copy(update={"gateways": gateways})

    def own_requests(self, app: str | None) -> RequestList:
        return self._context.metrics.requests.select(app)

    def own_request(self, id: str) -> FoundRequests:
        return FoundRequests(requests=self._context.metrics.requests.find(id))

    async def stream(self, read: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes, None]:
        """Yields figures now, soon after each change of an app, and at least every `MAX_SECONDS`.

        Ends when the app of the figures is deleted.
        """
        while True:
            change = self._changes.broadcast.next_change()
            try:
                yield await read()
            except ApiError:
                return
            await asyncio.sleep(MIN_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_SECONDS - MIN_SECONDS):
                    await change.wait()

    def own_figures(self, window_seconds: float, app: str | None) -> GatewayFigures:
        return gateway_figures(self._context, self.history, window_seconds, app)

    def own_steps(self, app: str) -> GatewaySteps:
        return GatewaySteps.of(self.history.steps(app))

    async def _overview(self) -> bytes:
        sums, gateways = await self._sums(OVERVIEW_SECONDS, None)
        return overview(self._context, self._changes, sums, gateways).model_dump_json().encode()

    async def _app(self, name: str) -> bytes:
        view = self._view(name)
        (sums, gateways), reports = await asyncio.gather(
            self._sums(LIVE_SECONDS, name), read_reports(view.status.groups)
        )
        received = self._bytes_per_second(view, reports)
        return app_live(view, self._context, sums, gateways, reports, received).model_dump_json().encode()

    async def _sums(self, seconds: float, app: str | None) -> tuple[Sums, ReadGateways]:
        parameters = {"window": f"{seconds:g}"} | ({} if app is None else {"app": app})
        found, gateways = await self._peers.read(
            LIVE_PATH, parameters, GatewayFigures, lambda: self.own_figures(seconds, app)
        )
        return Sums.of(found, seconds), gateways

    def _bytes_per_second(self, view: AppView, reports: dict[str, ReplicaReport]) -> dict[str, dict[str, float]]:
        """Returns the growth of the received bytes since the last figures, by executor group and kind of transfer.

        Kinds by which a group has received nothing so far are left out.
        """
        now = time.monotonic()
        last = self._received.get(view.name)
        self._received[view.name] = _Received(now, reports)
        if last is None or now - last.at > KEPT_SECONDS:
            return {}
        rates: dict[str, dict[str, float]] = {}
        for group in view.status.groups:
            kinds = rates.setdefault(group.key, {})
            for replica in group.replicas:
                before = last.replicas.get(replica.id, ReplicaReport()).received_bytes
                for kind, count in reports.get(replica.id, ReplicaReport()).received_bytes.items():
                    if count and replica.id in last.replicas:
                        kinds[kind] = kinds.get(kind, 0.0) + max(0, count - before.get(kind, 0)) / (now - last.at)
        return rates

    async def _compute(self, key: str, compute: Callable[[], Awaitable[bytes]]) -> bytes:
        computed = self._computed.setdefault(key, _Computed())
        async with computed.lock:
            now = time.monotonic()
            if now - computed.at >= MIN_SECONDS:
                self._forget(now, key)
                computed.content = await compute()
                computed.at = now
        return computed.content

    def _forget(self, now: float, computed: str) -> None:
        """Removes the figures that were not read for `KEPT_SECONDS`."""
        for key, other in [*self._computed.items()]:
            if key != computed and not other.lock.locked() and now - other.at > KEPT_SECONDS:
                del self._computed[key]
                self._received.pop(key, None)

    def _view(self, name: str) -> AppView:
        record = self._context.apps.records().get(name)
        if record is None:
            message = f"unknown app {name!r}: `cornserve status` lists the deployed apps"
            raise ApiError(404, message, param="name", code="app_not_found")
        return app_view(record, self._context)

    def _replicas(self) -> dict[str, StateCounts]:
        return {name: StateCounts.of(groups) for name, groups in self._context.apps.executor_groups().items()}
