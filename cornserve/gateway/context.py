"""What the HTTP handlers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from cornserve.control.store.base import Store
from cornserve.gateway.apps import Apps
from cornserve.gateway.http.admission import Admission
from cornserve.gateway.media.media import Media
from cornserve.gateway.observe.metrics import Metrics
from cornserve.gateway.replica_logs import Logs
from cornserve.gateway.request.replicas import Replicas


@dataclass(frozen=True, slots=True)
class Shared:
    store: Store
    apps: Apps
    replicas: Replicas
    metrics: Metrics
    logs: Logs
    admission: Admission
    media: Media
    controller_metrics: str | None = None
    """`host:port` where Prometheus finds the controller's metrics."""


async def _shared(request: Request) -> Shared:
    shared: Shared = request.app.state.shared
    return shared


Context = Annotated[Shared, Depends(_shared)]
