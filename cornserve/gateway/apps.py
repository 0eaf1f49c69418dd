"""The apps that this gateway serves, as the store says."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from cornserve.app.app import App
from cornserve.app.load import load
from cornserve.app.record import Route
from cornserve.app.source import unload_app
from cornserve.control.store.base import APPS, AppRecord, ChangeType, ExpiredError, Store
from cornserve.gateway.errors import ApiError
from cornserve.gateway.replica import Replicas

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""The pause before a store that failed is read anew."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A version of an app that is served."""

    app: App
    module: str
    route: Route
    created: int
    """Seconds since the epoch when this gateway first saw it."""
    request: TypeAdapter[Any]
    response: TypeAdapter[Any]

    @classmethod
    def load(cls, name: str, route: Route, module: str) -> Deployed:
        """Slow and blocking, as loading an app is."""
        app = load(name, route.spec, module)
        try:
            request, response = TypeAdapter(app.request_type), TypeAdapter(app.response_type)
        except Exception:
            unload_app(module)
            raise
        return cls(app, module, route, int(time.time()), request, response)


class Apps:
    """Follows the store. Each request takes a `Deployed` and keeps it, whatever is deployed meanwhile."""

    def __init__(self, store: Store, replicas: Replicas) -> None:
        self._store = store
        self._replicas = replicas
        self._deployed: dict[str, Deployed] = {}
        self._failures: dict[str, str] = {}
        self.synced = asyncio.Event()
        """Set once the store has been read."""

    def get(self, name: str) -> Deployed:
        """Raises a 404 that names what there is, or a 503 that says why what should be served is not."""
        if name in self._failures:
            raise ApiError(503, f"the app {name!r} cannot be loaded: {self._failures[name]}", code="not_ready")
        try:
            return self._deployed[name]
        except KeyError:
            served = ", ".join(sorted(self._deployed)) or "none"
            raise ApiError(
                404, f"the model {name!r} is not served here; served: {served}", param="model", code="model_not_found"
            ) from None

    def all(self) -> dict[str, Deployed]:
        return self._deployed

    async def follow(self) -> None:
        """Runs for ever, through whatever the store raises. Until it is read again, the gateway is not ready."""
        while True:
            try:
                await self._follow()
            except ExpiredError:
                log.info("missed changes of the store, reading it anew")
            except Exception:
                log.exception("cannot follow the store, trying again in %s s", RETRY_SECONDS)
                self.synced.clear()
                await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        listing = await self._store.list(APPS)
        for name in {*self._deployed, *self._failures} - {record.name for record in listing.records}:
            self._forget(name)
        for record in listing.records:
            await self._take(record)
        self.synced.set()
        async for change in self._store.watch(APPS, listing.version):
            if change.type is ChangeType.DELETED:
                self._forget(change.record.name)
            else:
                await self._take(change.record)

    async def _take(self, record: AppRecord) -> None:
        route = record.status.route
        if route is None:
            self._forget(record.name)
            return
        module = f"cornserve_app_{record.uid}_{route.generation}"
        old = self._deployed.get(record.name)
        if old is not None and old.module == module:
            self._deployed[record.name] = replace(old, route=route)
        else:
            try:
                new = await asyncio.to_thread(Deployed.load, record.name, route, module)
            except Exception as error:
                # Not the old generation instead: its executors are being drained.
                log.exception("cannot load app %s, generation %d", record.name, route.generation)
                self._forget(record.name)
                self._failures[record.name] = str(error)
                return
            self._failures.pop(record.name, None)
            self._deployed[record.name] = new
            if old is not None:
                unload_app(old.module)
        self._release()

    def _forget(self, name: str) -> None:
        self._failures.pop(name, None)
        deployed = self._deployed.pop(name, None)
        if deployed is not None:
            unload_app(deployed.module)
            self._release()

    def _release(self) -> None:
        routes = (deployed.route.endpoints.values() for deployed in self._deployed.values())
        self._replicas.retain({endpoint for groups in routes for group in groups for endpoint in group})
