"""The apps that this gateway serves, as the store says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from cornserve.app.record import GroupStatus, Route
from cornserve.app.source import unload_app
from cornserve.app.threads import run_in_daemon_thread
from cornserve.control.store.base import APPS, AppRecord, Change, ChangeType, Listing, Store
from cornserve.control.store.list_watch import list_and_watch
from cornserve.gateway.deployed import Deployed
from cornserve.gateway.errors import ApiError
from cornserve.gateway.observe.metrics import Metrics
from cornserve.gateway.request.replicas import Replicas

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""The pause before a store that failed is read anew."""

RELOAD_SECONDS = 10.0
"""The pause before an app that could not be loaded is tried again: what it lacked may be there by then."""

SYNC_SECONDS = 10.0
"""How long a gateway that starts waits for all apps to be imported, before it serves those that are."""


class Wanted(NamedTuple):
    """What the store says of an app."""

    route: Route
    module: str
    """The name under which its code is imported."""
    version: int
    """Of the record that says so."""


class Apps:
    """Follows the store. Each request takes a `Deployed` and keeps it, whatever is deployed meanwhile."""

    def __init__(self, store: Store, replicas: Replicas, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._replicas = replicas
        self._wanted: dict[str, Wanted] = {}
        self._deployed: dict[str, Deployed] = {}
        self._failures: dict[str, str] = {}
        """By module, why it could not be loaded. It is tried again."""
        self._loading: dict[str, asyncio.Task[None]] = {}
        """By module."""
        self._tasks: asyncio.TaskGroup
        self._groups: dict[str, list[GroupStatus]] = {}
        self.synced = asyncio.Event()
        """Set once the store has been read, and what it says is served."""

    def get(self, name: str) -> Deployed:
        """Raises a 404 that names what there is, or a 503 that says why what should be served is not."""
        wanted = self._wanted.get(name)
        if wanted is not None and wanted.module in self._failures:
            reason = self._failures[wanted.module]
            raise ApiError(503, f"the app {name!r} cannot be loaded: {reason}", code="not_ready")
        try:
            return self._deployed[name]
        except KeyError:
            if not self.synced.is_set():
                raise ApiError(503, "the store, which has the apps, has not been read", code="not_ready") from None
            if wanted is not None:
                raise ApiError(503, f"the app {name!r} is being loaded", code="not_ready") from None
            served = ", ".join(sorted(self._deployed)) or "none"
            raise ApiError(
                404, f"the model {name!r} is not served here; served: {served}", param="model", code="model_not_found"
            ) from None

    def groups(self) -> Mapping[str, list[GroupStatus]]:
        """The executors of each app, also of those that are not served yet."""
        return self._groups

    def all(self) -> dict[str, Deployed]:
        return self._deployed

    async def follow(self) -> None:
        """Runs for ever, through whatever fails. Until the store is read again, the gateway is not ready."""
        while True:
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    await self._follow()
            except Exception:
                log.exception("cannot follow the store, trying again in %s s", RETRY_SECONDS)
                self.synced.clear()
                self._failures.clear()  # Who would have tried them again has ended.
                await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        async for news in list_and_watch(self._store, APPS):
            match news:
                case Listing(records):
                    for name in self._groups.keys() - {record.name for record in records}:
                        self._delete(name)
                    for record in records:
                        self._take(record)
                    self._tasks.create_task(self._become_synced())
                case Change(ChangeType.DELETED, record=record):
                    self._delete(record.name)
                case Change(record=record):
                    self._take(record)

    async def _become_synced(self) -> None:
        if self._loading:
            await asyncio.wait(self._loading.values(), timeout=SYNC_SECONDS)
        self.synced.set()

    def _take(self, record: AppRecord) -> None:
        self._groups[record.name] = record.status.groups
        route = record.status.route
        if route is None:
            self._forget(record.name)
            return
        module = f"cornserve_app_{record.uid}_{route.spec.code}"
        self._wanted[record.name] = Wanted(route, module, record.version)
        deployed = self._deployed.get(record.name)
        if deployed is not None and deployed.module == module:
            self._deployed[record.name] = replace(deployed, route=route)
        elif module not in self._loading and module not in self._failures:
            self._loading[module] = self._tasks.create_task(self._load(record, route, module))
        self._tell_replicas()

    async def _load(self, record: AppRecord, route: Route, module: str) -> None:
        """Beside the store's changes: code that is slow to import holds up no other app. Until then, the old serves."""
        name = record.name
        try:
            new = await run_in_daemon_thread(Deployed.load, record, route, module)
        except Exception as error:
            log.exception("cannot load app %s, generation %d", name, route.generation)
            self._failures[module] = str(error)
            self._tasks.create_task(self._load_later(record, route, module))
            if self._wants(name, module):
                # Not the old generation instead: its executors are being drained.
                self._withdraw(name)
        else:
            self._failures.pop(module, None)
            self._serve(name, new)
        finally:
            del self._loading[module]

    async def _load_later(self, record: AppRecord, route: Route, module: str) -> None:
        await asyncio.sleep(RELOAD_SECONDS)
        if self._wants(record.name, module):
            self._loading[module] = self._tasks.create_task(self._load(record, route, module))
        else:
            del self._failures[module]

    def _serve(self, name: str, new: Deployed) -> None:
        if not self._wants(name, new.module):
            unload_app(new.module)
            return
        old = self._deployed.get(name)
        self._deployed[name] = replace(new, route=self._wanted[name].route)
        if old is not None:
            unload_app(old.module)
        self._tell_replicas()

    def _wants(self, name: str, module: str) -> bool:
        return name in self._wanted and self._wanted[name].module == module

    def _delete(self, name: str) -> None:
        self._groups.pop(name, None)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._wanted.pop(name, None)
        self._withdraw(name)

    def _withdraw(self, name: str) -> None:
        deployed = self._deployed.pop(name, None)
        if deployed is not None:
            unload_app(deployed.module)
        self._tell_replicas()

    def _replica_ids(self) -> dict[str, str]:
        """By endpoint."""
        replicas = (replica for groups in self._groups.values() for group in groups for replica in group.replicas)
        return {replica.endpoint: replica.id for replica in replicas if replica.endpoint is not None}

    def _tell_replicas(self) -> None:
        """Tells which replicas there are. Apps that share a group name the same ones, sooner or later."""
        served = (deployed.route for deployed in self._deployed.values())
        stored = (wanted.route for wanted in sorted(self._wanted.values(), key=lambda wanted: wanted.version))
        endpoints = {key: group for route in (*served, *stored) for key, group in route.endpoints.items()}
        self._replicas.update(endpoints, self._replica_ids())
        self._metrics.retain(set(self._wanted))
