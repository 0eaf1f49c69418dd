"""The services that the HTTP handlers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Request

from cornserve.app.event import AppEvent
from cornserve.app_host.fork_client import ForkServer
from cornserve.control.store.base import AppRecord, Store
from cornserve.gateway.app_registry import AppRegistry
from cornserve.gateway.http.admission import RequestAdmission
from cornserve.gateway.media.media_loader import MediaLoader
from cornserve.gateway.observe.gateway_logs import GatewayLogs
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.state_events import state_events
from cornserve.gpu_prices import GpuPrices


class ReplicaLogReader(Protocol):
    async def __call__(self, replica: str, lines: int) -> list[str]:
        """Returns the last lines of a replica's log, or an empty list if the replica is unknown."""


class ReplicaKiller(Protocol):
    async def __call__(self, replica: str) -> bool:
        """Kills the process of a replica. Returns whether it ran."""


class AppEventReader(Protocol):
    async def __call__(self, record: AppRecord) -> list[AppEvent]:
        """Returns what has happened to an app, oldest first."""


@dataclass(frozen=True, slots=True)
class GatewayContext:
    store: Store
    apps: AppRegistry
    replicas: ReplicaPool
    metrics: GatewayMetrics
    logs: ReplicaLogReader
    admission: RequestAdmission
    media: MediaLoader
    fork_server: ForkServer
    gateways: Sequence[str] = ()
    """If several gateways share a port: a `host:port` for each of them."""
    controller_metrics: str | None = None
    """The `host:port` of the controller's metrics, for Prometheus."""
    events: AppEventReader = state_events
    on_kubernetes: bool = False
    """Whether the executors are pods."""
    app_logs: GatewayLogs = field(default_factory=GatewayLogs)
    """The lines that the code of apps has written."""
    draw_key: bytes = b""
    """The secret of the instance with which the ids of requests determine random choices."""
    ignores_unknown_fields: bool = False
    """Whether requests may have fields that Cornserve does not know."""
    prices: GpuPrices = field(default_factory=GpuPrices)
    """The prices of GPUs and slots."""
    kill_replica: ReplicaKiller | None = None
    """Kills replicas, if they are processes of this machine."""


async def _context(request: Request) -> GatewayContext:
    context: GatewayContext = request.app.state.context
    return context


Context = Annotated[GatewayContext, Depends(_context)]
"""A handler parameter that FastAPI sets to the gateway's context."""
