"""The apps that this gateway serves, kept in sync with the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Set
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cornserve.app.record import AppStatus, GroupStatus, Route
from cornserve.app.spec import AppSpec
from cornserve.control.store.base import APPS, ROUTES, AppRecord, RouteRecord, Store
from cornserve.control.store.record_cache import CacheUpdate, RecordCache
from cornserve.gateway.app_loader import AppLoader
from cornserve.gateway.errors import ApiError
from cornserve.gateway.executor_endpoints import EndpointSource, ExecutorEndpoints
from cornserve.gateway.observe.app_changes import AppChanges
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request_route import RequestRoute
from cornserve.gateway.routed_groups import RoutedGroups
from cornserve.gateway.served_app import ServedApp
from cornserve.gateway.suspension import store_suspension, suspended_error
from cornserve.gateway.task_runs.task_runner import AppCode

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""The delay before watching the store again after an unexpected error."""

RELOAD_SECONDS = 10.0
"""The delay before loading an app again after an error: a missing dependency may have been installed."""

LOADING_SECONDS = 30.0
"""The time for which requests wait for an app that is being loaded."""

SYNC_SECONDS = 10.0
"""The time after which a starting gateway is ready, although some apps are still being loaded."""


class DesiredApp(NamedTuple):
    """The version of an app that the store requests."""

    uid: str
    route: Route
    module: str
    """The name under which its code is imported."""
    suspended: str
    """The reason for which the app is suspended, or an empty text."""
    leaves_executors: bool
    """Whether its executors end before others start: the app is parked, or will be recreated as another version.

    They end when their callers have disconnected."""


class LoadFailure(NamedTuple):
    """A version of an app that could not be loaded."""

    reason: str
    retry: asyncio.Task[None]
    """Loads the version again later."""


class AppRegistry:
    """Loads apps as the store changes. Each request keeps the `ServedApp` that it started with.

    Args:
        endpoint_source: reports the endpoints of executors. By default, the apps' records contain them.
        changes: receives the changes of apps.
    """

    def __init__(
        self,
        store: Store,
        loader: AppLoader,
        replicas: ReplicaPool,
        metrics: GatewayMetrics,
        endpoint_source: EndpointSource | None = None,
        changes: AppChanges | None = None,
    ) -> None:
        self._store = store
        self._loader = loader
        self._metrics = metrics
        self._replicas = replicas
        self._apps = RecordCache[AppSpec, AppStatus](store, APPS)
        self._routes = RecordCache(store, ROUTES)
        self._endpoints = ExecutorEndpoints(endpoint_source)
        self._routed = RoutedGroups()
        self._changes = changes or AppChanges()
        self._desired: dict[str, DesiredApp] = {}
        self._served: dict[str, ServedApp] = {}
        self._failures: dict[str, LoadFailure] = {}
        """Desired versions that could not be loaded, by module."""
        self._loading: dict[str, asyncio.Task[None]] = {}
        """Tasks that load apps, by module."""
        self._tasks: asyncio.TaskGroup
        self.synced = asyncio.Event()
        """Set when the apps of the store are loaded, or after `SYNC_SECONDS`."""

    async def wait_while_loading(self, name: str) -> None:
        """Waits until the first version of a deployed app is loaded here, at most `LOADING_SECONDS`.

        Another gateway may serve the app already, so clients may regard it as ready.
        """
        desired = self._desired.get(name)
        if desired is not None and name not in self._served and desired.module in self._loading:
            await asyncio.wait((self._loading[desired.module],), timeout=LOADING_SECONDS)

    def get(self, name: str) -> ServedApp:
        """Returns the current version. Raises a 404 for an unknown app, and a 503 for an app that is not loaded."""
        desired = self._desired.get(name)
        if desired is not None and desired.module in self._failures:
            reason = self._failures[desired.module].reason
            raise ApiError(503, f"the app {name!r} cannot be loaded: {reason}", code="not_ready")
        if desired is not None and desired.suspended:
            raise suspended_error(name, desired.suspended)
        if desired is not None and not desired.route.spec.replicas:
            message = f"the app {name!r} is parked: start it with `cornserve scale {name} 1`"
            raise ApiError(503, message, code="app_parked")
        try:
            return self._served[name]
        except KeyError:
            raise self._unavailable(name) from None

    def _unavailable(self, name: str) -> ApiError:
        """Returns the error for an app that this gateway does not serve."""
        if not self.synced.is_set():
            message = "the gateway has not read the deployed apps yet: retry after 1 s"
            return ApiError(503, message, code="not_ready")
        unreadable = self.unreadable()
        if name in unreadable:
            return ApiError(503, unreadable[name], code="not_ready")
        if name in self._desired:
            return ApiError(503, f"the app {name!r} is being loaded: retry after 1 s", code="not_ready")
        served = f"use one of: {', '.join(sorted(self._served))}" if self._served else "see `cornserve status`"
        message = f"unknown model {name!r}: deploy it with `cornserve deploy`, or {served}"
        return ApiError(404, message, param="model", code="model_not_found")

    def served(self) -> dict[str, ServedApp]:
        return self._served

    def suspension(self, name: str) -> str:
        """Returns the reason for which an app is suspended, or an empty text."""
        return self._desired[name].suspended if name in self._desired else ""

    def records(self) -> Mapping[str, AppRecord]:
        """Returns the records of all apps, as they were read last."""
        return self._apps.records

    def unreadable(self) -> Mapping[str, str]:
        """Returns why the records of apps cannot be read, by name."""
        return {**self._routes.unreadable, **self._apps.unreadable}

    def executor_groups(self) -> Mapping[str, list[GroupStatus]]:
        """Returns the executor groups of each app, including apps that are not served yet."""
        return {name: record.status.groups for name, record in self._apps.records.items()}

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
        self._tasks.create_task(self._apps.follow(self._on_apps))
        self._tasks.create_task(self._routes.follow(self._on_routes))
        self._tasks.create_task(self._endpoints.follow(self._publish_groups))
        await self._apps.listed.wait()
        await self._routes.listed.wait()
        await self._endpoints.read.wait()
        if self._loading:
            await asyncio.wait(self._loading.values(), timeout=SYNC_SECONDS)
        self.synced.set()

    def _on_apps(self, update: CacheUpdate) -> None:
        changed = {name: self._apps.records.get(name) for name in update.names}
        for name, record in changed.items():
            self._changes.update(name, record, is_first=not self.synced.is_set())
        newest_last = sorted(changed.items(), key=lambda item: -1 if item[1] is None else item[1].version)
        for name, record in newest_last:
            self._publish_groups(self._endpoints.update_app(name, record.status.groups if record else []))
        self._on_routes(update)

    def _on_routes(self, update: CacheUpdate) -> None:
        if self._apps.listed.is_set() and self._routes.listed.is_set():
            for name in update.names:
                self._update_app(name)

    def _update_app(self, name: str) -> None:
        app, route = self._apps.records.get(name), self._routes.records.get(name)
        if app is not None and route is None and name in self._desired and self._desired[name].uid == app.uid:
            return  # Someone has deleted the route: the controller writes it again.
        if app is None or route is None or route.spec.app_uid != app.uid:
            self._remove(name)
            return
        desired, old = self._to_desired(app, route), self._desired.get(name)
        self._desired[name] = desired
        if old is not None and old.module != desired.module:
            self._forget_failure(old.module)
        served = self._served.get(name)
        if served is not None and served.module == desired.module:
            self._set_served(name, replace(served, route=self._request_route(desired.route, served)))
        elif desired.module not in self._loading and desired.module not in self._failures:
            self._loading[desired.module] = self._tasks.create_task(self._load(name, desired))
        self._publish_app(name)

    def _to_desired(self, app: AppRecord, route: RouteRecord) -> DesiredApp:
        known = self._desired.get(app.name)
        code = route.spec.spec.code
        module = known.module if known and known.route is route.spec else f"cornserve_app_{app.uid}_{code}"
        suspended = route.status.suspended if route.status.suspended_code == code else ""
        is_recreated = app.spec.rollout.type == "Recreate" and app.spec.code != code
        return DesiredApp(app.uid, route.spec, module, suspended, is_recreated or not route.spec.spec.replicas)

    def _request_route(self, route: Route, served: ServedApp | None) -> RequestRoute:
        """Returns the route of a version with the endpoints that are known."""
        known = {} if served is None else served.route.endpoints
        endpoints = self._endpoints.by_group(route.group_keys)
        return replace(RequestRoute.of(route), endpoints=known).with_endpoints(endpoints)

    async def _load(self, name: str, desired: DesiredApp) -> None:
        """Loads in the background, so that slow imports do not delay other apps. The old version continues to serve."""
        module, route = desired.module, desired.route
        try:
            code = await self._loader.load(name, route, module, partial(self._suspend, name, module))
        except Exception as error:
            log.exception("cannot load app %s, generation %d", name, route.generation)
            if self._is_desired(name, module):
                self._failures[module] = LoadFailure(
                    str(error), self._tasks.create_task(self._load_later(name, desired))
                )
                # The executors of the old version are draining, so the old version cannot continue to serve.
                self._unload(name)
        else:
            self._failures.pop(module, None)
            self._serve(name, code, module)
        finally:
            del self._loading[module]

    async def _load_later(self, name: str, desired: DesiredApp) -> None:
        await asyncio.sleep(RELOAD_SECONDS)
        self._loading[desired.module] = self._tasks.create_task(self._load(name, desired))

    def _forget_failure(self, module: str) -> None:
        failure = self._failures.pop(module, None)
        if failure is not None:
            failure.retry.cancel()

    def _suspend(self, name: str, module: str, reason: str) -> None:
        """Refuses further requests to the app, here and, through the store, in all gateways."""
        if self._is_desired(name, module):
            log.warning("suspending app %s: %s", name, reason)
            self._desired[name] = self._desired[name]._replace(suspended=reason)
            code = self._desired[name].route.spec.code
            self._tasks.create_task(store_suspension(self._store, name, code, reason))

    def _serve(self, name: str, code: AppCode, module: str) -> None:
        with ExitStack() as unless_served:
            unless_served.callback(code.close)
            if not self._is_desired(name, module):
                return
            desired, old = self._desired[name], self._served.get(name)
            route = self._request_route(desired.route, None)
            self._set_served(name, ServedApp(code, desired.uid, module, route, int(time.time())))
            unless_served.pop_all()
        if old is not None:
            old.code.close()
        self._publish_app(name)

    def _set_served(self, name: str, served: ServedApp) -> None:
        old, route = self._served.get(name), served.route
        if old is not None:
            self._replicas.replace_groups(old.route.successors(route))
        self._served[name] = served
        self._metrics.set_planned_shares(name, () if route.plan is None else [*route.plan.shares()])
        policies = route.policies
        self._metrics.set_targets(name, policies.targets, logs_decisions=policies.log_decisions)
        self._metrics.retain_groups(name, route.group_keys, route.options)

    def _is_desired(self, name: str, module: str) -> bool:
        return name in self._desired and self._desired[name].module == module

    def _remove(self, name: str) -> None:
        desired = self._desired.pop(name, None)
        if desired is not None:
            self._forget_failure(desired.module)
        self._unload(name)
        self._metrics.forget_app(name)

    def _unload(self, name: str) -> None:
        served = self._served.pop(name, None)
        if served is not None:
            served.code.close()
        self._publish_app(name)

    def _publish_app(self, name: str) -> None:
        """Updates the replica pool after a change of an app's routes."""
        routes = [versions[name].route for versions in (self._served, self._desired) if name in versions]
        self._publish_groups(self._routed.update(name, {group for route in routes for group in route.group_keys}))

    def _publish_groups(self, groups: Set[str]) -> None:
        """Updates the replica pool, and the routes that contain the groups, after a change of the groups."""
        for name in {name for group in groups for name in self._routed.apps(group) if name in self._served}:
            app = self._served[name]
            route = app.route.with_endpoints(self._endpoints.by_group(app.route.group_keys))
            if route is not app.route:
                self._served[name] = replace(app, route=route)
        for group in sorted(groups):
            apps = self._routed.apps(group)
            is_left = all(name in self._desired and self._desired[name].leaves_executors for name in apps)
            replicas = self._endpoints.replicas(group, is_left=is_left) if apps else None
            if apps and replicas is None:
                self._replicas.keep_group(group)
                continue
            is_waiting = self._endpoints.is_waiting(group)
            failure, paused = self._endpoints.failure(group), self._endpoints.paused(group)
            self._replicas.update_group(group, replicas, failure, is_waiting=is_waiting, paused=paused)
