"""The apps that this gateway serves, kept in sync with the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cornserve.app.record import AppSpec, AppStatus, GroupStatus, ReplicaState, Route
from cornserve.control.store.base import APPS, AppRecord, Change, ChangeType, Listing, Store, StoreError
from cornserve.control.store.list_watch import list_and_watch
from cornserve.gateway.app_loader import AppLoader
from cornserve.gateway.errors import ApiError
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.served_app import ServedApp
from cornserve.gateway.suspension import store_suspension, suspended_error
from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""The delay before reading the store again after an error."""

RELOAD_SECONDS = 10.0
"""The delay before loading an app again after an error: a missing dependency may have been installed."""

SYNC_SECONDS = 10.0
"""The time after which a starting gateway is ready, although some apps are still being loaded."""


class DesiredApp(NamedTuple):
    """The version of an app that the store requests."""

    route: Route
    module: str
    """The name under which its code is imported."""
    record_version: int
    suspended: str
    """The reason for which the app is suspended, or an empty text."""


class AppRegistry:
    """Loads apps as the store changes. Each request keeps the `ServedApp` that it started with."""

    def __init__(self, store: Store, loader: AppLoader, replicas: ReplicaPool, metrics: GatewayMetrics) -> None:
        self._store = store
        self._loader = loader
        self._metrics = metrics
        self._replicas = replicas
        self._desired: dict[str, DesiredApp] = {}
        self._served: dict[str, ServedApp] = {}
        self._failures: dict[str, str] = {}
        """Errors of apps that could not be loaded, by module. Loading is retried."""
        self._loading: dict[str, asyncio.Task[None]] = {}
        """Tasks that load apps, by module."""
        self._tasks: asyncio.TaskGroup
        self._groups: dict[str, list[GroupStatus]] = {}
        self._unreadable: dict[str, str] = {}
        """Why the records of some apps cannot be read, by name. These apps stay as they were read last."""
        self._store_errors = ErrorLog(log, "cannot read the store; the apps stay as they were read last: %s")
        self.synced = asyncio.Event()
        """Set when the apps of the store are loaded, or after `SYNC_SECONDS`."""

    def get(self, name: str) -> ServedApp:
        """Returns the current version. Raises a 404 for an unknown app, and a 503 for an app that is not loaded."""
        desired = self._desired.get(name)
        if desired is not None and desired.module in self._failures:
            reason = self._failures[desired.module]
            raise ApiError(503, f"the app {name!r} cannot be loaded: {reason}", code="not_ready")
        if desired is not None and desired.suspended:
            raise suspended_error(name, desired.suspended)
        try:
            return self._served[name]
        except KeyError:
            if not self.synced.is_set():
                raise ApiError(
                    503, "the gateway has not read the deployed apps yet: retry after 1 s", code="not_ready"
                ) from None
            if name in self._unreadable:
                raise ApiError(503, self._unreadable[name], code="not_ready") from None
            if desired is not None:
                raise ApiError(503, f"the app {name!r} is being loaded: retry after 1 s", code="not_ready") from None
            served = f"use one of: {', '.join(sorted(self._served))}" if self._served else "see `cornserve status`"
            message = f"unknown model {name!r}: deploy it with `cornserve deploy`, or {served}"
            raise ApiError(404, message, param="model", code="model_not_found") from None

    def served(self) -> dict[str, ServedApp]:
        return self._served

    def executor_groups(self) -> Mapping[str, list[GroupStatus]]:
        """Returns the executor groups of each app, including apps that are not served yet."""
        return self._groups

    def close(self) -> None:
        """Ends the processes of all apps."""
        for served in self._served.values():
            served.code.close()

    async def watch_store(self) -> None:
        """Runs forever and retries after errors.

        While the store cannot be read, the gateway serves the last apps that it has read. After an unexpected error, it
        is not ready until the store is read.
        """
        while True:
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    await self._watch()
            except Exception:
                log.exception("cannot watch the store, retrying in %s s", RETRY_SECONDS)
                self.synced.clear()
                self._failures.clear()  # The tasks that retry failed apps are cancelled.
                await asyncio.sleep(RETRY_SECONDS)

    async def _watch(self) -> None:
        while True:
            try:
                async for event in list_and_watch(self._store, APPS):
                    self._apply(event)
                    self._store_errors.clear()
            except StoreError as error:
                self._store_errors.report(str(error))
            await asyncio.sleep(RETRY_SECONDS)

    def _apply(self, event: Listing[AppSpec, AppStatus] | Change[AppSpec, AppStatus]) -> None:
        match event:
            case Listing(records, unreadable=unreadable):
                self._unreadable = {record.name: record.reason for record in unreadable}
                for name in self._groups.keys() - {record.name for record in records} - self._unreadable.keys():
                    self._delete(name)
                for record in records:
                    self._update(record)
                self._tasks.create_task(self._set_synced())
            case Change(ChangeType.DELETED, record=record):
                self._delete(record.name)
            case Change(record=record):
                self._update(record)

    async def _set_synced(self) -> None:
        if self._loading:
            await asyncio.wait(self._loading.values(), timeout=SYNC_SECONDS)
        self.synced.set()

    def _update(self, record: AppRecord) -> None:
        self._unreadable.pop(record.name, None)
        self._groups[record.name] = record.status.groups
        route = record.status.route
        if route is None:
            self._remove(record.name)
            return
        module = f"cornserve_app_{record.uid}_{route.spec.code}"
        self._desired[record.name] = DesiredApp(route, module, record.version, record.spec.suspended)
        served = self._served.get(record.name)
        if served is not None and served.module == module:
            self._served[record.name] = replace(served, route=route)
        elif module not in self._loading and module not in self._failures:
            self._loading[module] = self._tasks.create_task(self._load(record, route, module))
        self._publish_routes()

    async def _load(self, record: AppRecord, route: Route, module: str) -> None:
        """Loads in the background, so that slow imports do not delay other apps. The old version continues to serve."""
        name = record.name
        try:
            new = await self._loader.load(record, route, module, partial(self._suspend, name, module))
        except Exception as error:
            log.exception("cannot load app %s, generation %d", name, route.generation)
            self._failures[module] = str(error)
            self._tasks.create_task(self._load_later(record, route, module))
            if self._is_desired(name, module):
                # The executors of the old version are draining, so the old version cannot continue to serve.
                self._unload(name)
        else:
            self._failures.pop(module, None)
            self._serve(name, new)
        finally:
            del self._loading[module]

    async def _load_later(self, record: AppRecord, route: Route, module: str) -> None:
        await asyncio.sleep(RELOAD_SECONDS)
        if self._is_desired(record.name, module):
            self._loading[module] = self._tasks.create_task(self._load(record, route, module))
        else:
            del self._failures[module]

    def _suspend(self, name: str, module: str, reason: str) -> None:
        """Refuses further requests to the app, here and, through the store, in all gateways."""
        if self._is_desired(name, module):
            log.warning("suspending app %s: %s", name, reason)
            self._desired[name] = self._desired[name]._replace(suspended=reason)
            code = self._desired[name].route.spec.code
            self._tasks.create_task(store_suspension(self._store, name, code, reason))

    def _serve(self, name: str, new: ServedApp) -> None:
        if not self._is_desired(name, new.module):
            new.code.close()
            return
        old = self._served.get(name)
        self._served[name] = replace(new, route=self._desired[name].route)
        if old is not None:
            old.code.close()
        self._publish_routes()

    def _is_desired(self, name: str, module: str) -> bool:
        return name in self._desired and self._desired[name].module == module

    def _delete(self, name: str) -> None:
        self._unreadable.pop(name, None)
        self._groups.pop(name, None)
        self._remove(name)

    def _remove(self, name: str) -> None:
        self._desired.pop(name, None)
        self._unload(name)

    def _unload(self, name: str) -> None:
        served = self._served.pop(name, None)
        if served is not None:
            served.code.close()
        self._publish_routes()

    def _replica_ids(self) -> dict[str, str]:
        """Returns replica ids by endpoint."""
        replicas = (replica for groups in self._groups.values() for group in groups for replica in group.replicas)
        return {replica.endpoint: replica.id for replica in replicas if replica.endpoint is not None}

    def _failed_groups(self) -> dict[str, str]:
        """Returns the executor groups whose replicas have all failed, with the reason."""
        return {
            group.key: group.replicas[0].message
            for groups in self._groups.values()
            for group in groups
            if group.replicas and all(replica.state is ReplicaState.FAILED for replica in group.replicas)
        }

    def _publish_routes(self) -> None:
        """Updates the replica pool. If apps that share a group list different endpoints, the newest record wins."""
        served = (app.route for app in self._served.values())
        stored = (app.route for app in sorted(self._desired.values(), key=lambda app: app.record_version))
        endpoints = {key: group for route in (*served, *stored) for key, group in route.endpoints.items()}
        self._replicas.update_routes(endpoints, self._replica_ids(), self._failed_groups())
        self._metrics.retain_apps(set(self._desired))
