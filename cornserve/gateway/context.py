"""What the HTTP handlers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from cornserve.control.store.base import Store
from cornserve.gateway.apps import Apps
from cornserve.gateway.logs import Logs
from cornserve.gateway.metrics import Metrics
from cornserve.gateway.replica import Replicas


@dataclass(frozen=True, slots=True)
class Shared:
    store: Store
    apps: Apps
    replicas: Replicas
    metrics: Metrics
    logs: Logs


async def _shared(request: Request) -> Shared:
    shared: Shared = request.app.state.shared
    return shared


Context = Annotated[Shared, Depends(_shared)]
