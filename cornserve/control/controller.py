"""The controller reconciles what runs with the stored apps and writes the status of each app.

It is level-triggered: each round compares the desired state with the observed state. Nothing is therefore lost when the
controller crashes, and a failed round is repeated. An error in one app or executor group does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from cornserve.app.plan import AppPlan
from cornserve.app.record import AppStatus, Route, RouteStatus
from cornserve.app.spec import AppSpec
from cornserve.app_host.describe import DescribeApp
from cornserve.control.adaptation.arrival_reader import ArrivalReader
from cornserve.control.adaptation.driver import AdaptationDriver
from cornserve.control.adaptation.replanning import Replanning
from cornserve.control.app_observer import AppObserver
from cornserve.control.deployment import Deployment
from cornserve.control.executor_groups import share_groups
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher, LauncherError, Replica
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.planning.initial_plans import InitialPlans
from cornserve.control.planning.planner_process import Planner, limit_planners, run_planner
from cornserve.control.profiling.job import RunProfiler
from cornserve.control.profiling.runs import ProfilingRuns
from cornserve.control.store.base import (
    APPS,
    ROUTES,
    AlreadyExistsError,
    AppRecord,
    ConflictError,
    FieldConflictError,
    NotFoundError,
    Store,
    StoreError,
)
from cornserve.control.store.record_cache import CacheUpdate, RecordCache
from cornserve.control.task_manager import TaskManager
from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Controller:
    """Reconciles apps.

    Args:
        describe: describes an app without an import of its code into this process.
        observer: receives what happens to apps.
        arrivals: reads the arrivals from the gateways. Without it, apps do not adapt to their load.
        spec_store: the store of the specs as users have written them; by default, `store`.
        planner: makes the plans of apps that have only the inputs of one, and those for shifted mixes.
        profiler: measures the options of apps whose inputs have no profile. Without it, they cannot be planned.
    """

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        describe: DescribeApp,
        observer: AppObserver | None = None,
        arrivals: ArrivalReader | None = None,
        spec_store: Store | None = None,
        planner: Planner = run_planner,
        profiler: RunProfiler | None = None,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._describe = describe
        self._observer = observer
        self.metrics = ControllerMetrics(launcher)
        self._apps: RecordCache[AppSpec, AppStatus] = RecordCache(store, APPS)
        self._routes: RecordCache[Route, RouteStatus] = RecordCache(store, ROUTES)
        self._deployments: dict[str, Deployment] = {}
        self._managers: dict[GroupKey, TaskManager] = {}
        self._loading: set[tuple[str, str]] = set()
        """The uid and code hash of each app that is being loaded."""
        self._write_errors = ErrorLog(log, "%s; the controller retries")
        self._tasks: asyncio.TaskGroup
        self._changed = asyncio.Event()
        self._retry = False
        """Whether the next round starts even if nothing changes."""
        planner = limit_planners(planner)
        on_change = self._changed.set
        self._planning = InitialPlans(
            spec_store or store, describe, planner, launcher, on_change, self.metrics.count_error
        )
        self._profiling: ProfilingRuns | None = None
        if profiler is not None:
            self._profiling = ProfilingRuns(spec_store or store, profiler, self._planning.find_refusal, on_change)
        self._adaptation: AdaptationDriver | None = None
        if arrivals is not None:
            self._adaptation = AdaptationDriver(
                spec_store or store,
                arrivals,
                self._find_obstacle,
                self._most_gpus,
                self.metrics,
                observer,
                on_change,
                Replanning(describe, planner),
            )

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._apps.follow(self._on_apps, self.metrics.count_error))
                self._tasks.create_task(self._routes.follow(self._on_routes, self.metrics.count_error))
                self._tasks.create_task(self._watch_launcher())
                self._tasks.create_task(self._reconcile())
                if self._adaptation is not None:
                    self._tasks.create_task(self._adaptation.run())
        finally:
            await self._planning.close()
            if self._profiling is not None:
                await self._profiling.close()

    def _on_apps(self, update: CacheUpdate) -> None:
        self._on_routes(update)
        if self._observer is not None:
            for record in update.unreadable:
                self._tasks.create_task(self._observer.on_unreadable(record))

    def _on_routes(self, update: CacheUpdate) -> None:
        for record in update.unreadable:
            log.error("%s; its executors keep running", record.reason)
        self._changed.set()

    async def _watch_launcher(self) -> None:
        async for _ in self._launcher.watch():
            self._changed.set()

    async def _reconcile(self) -> None:
        await self._apps.listed.wait()  # Without the records, every running executor would look unwanted.
        await self._routes.listed.wait()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_round):
                    await self._changed.wait()
            self._changed.clear()
            self._retry = False
            with self.metrics.time_round(), self._retry_on_error("this round"):
                await self._run_round()

    @property
    def _next_round(self) -> float | None:
        """The time by the event loop's clock of the next round, if nothing changes before."""
        now = asyncio.get_running_loop().time()
        times = [each.deadline for each in self._deployments.values() if each.deadline is not None]
        if self._retry:
            times.append(now + RETRY_SECONDS)
        return max(min(times), now + RETRY_SECONDS) if times else None

    @contextmanager
    def _retry_on_error(self, operation: str) -> Iterator[None]:
        """Logs an error of the block and schedules another round."""
        try:
            yield
        except (StoreError, LauncherError) as error:
            self._write_errors.report(f"{operation} failed: {error}")
            self.metrics.count_error()
            self._retry = True
        except Exception:
            log.exception("%s failed; the next attempt starts in %s s", operation, RETRY_SECONDS)
            self.metrics.count_error()
            self._retry = True

    async def _run_round(self) -> None:
        self._apply_records()
        deployments = self._deployments.values()
        await self._apply_groups(share_groups(group for each in deployments for group in each.groups().values()))
        observed = self._launcher.replicas()
        self.metrics.observe(observed)
        self.metrics.retain(set(self._deployments), set(self._managers))
        by_group = defaultdict[GroupKey, list[Replica]](list)
        for replica in observed:
            by_group[replica.group].append(replica)
        for key, manager in self._managers.items():
            manager.observe(by_group[key])
        for name, deployment in self._deployments.items():
            with self._retry_on_error(f"writing the status of app {name}"):
                await self._write_status(deployment)
        await self._delete_routes()
        if not self._retry:
            self._write_errors.clear()

    def _apply_records(self) -> None:
        for name, deployment in list(self._deployments.items()):
            record = self._apps.records.get(name)
            if record is None or record.uid != deployment.record.uid:
                del self._deployments[name]
        for name, record in self._apps.records.items():
            deployment = self._deployments.setdefault(name, Deployment(record))
            deployment.apply_records(record, self._routes.records.get(name))
            deployment.make_room(self._launcher)
            code = (record.uid, record.spec.code)
            if deployment.needs_loading and code not in self._loading:
                self._loading.add(code)
                self._tasks.create_task(self._load(deployment, code))
        self._update_preparations()
        if self._adaptation is not None:
            self._adaptation.update({name: each.adapted_record for name, each in self._deployments.items()})

    def _update_preparations(self) -> None:
        """Starts the measurements and the planning of versions that need them, and ends all others."""
        failed = {name for name, each in self._deployments.items() if each.has_failed}
        wanted = {name: each.record for name, each in self._deployments.items() if each.record.spec.needs_plan}
        measured: dict[str, AppRecord] = {}
        if self._profiling is not None:
            measured = {name: record for name, record in wanted.items() if record.spec.needs_profile}
            self._profiling.update(measured, self._apps.records, failed)
        self._planning.update({name: record for name, record in wanted.items() if name not in measured}, failed)
        for name, deployment in self._deployments.items():
            measurements = None if self._profiling is None else self._profiling.state(name)
            deployment.planning = measurements or self._planning.state(name)

    def _find_obstacle(self, app: str, plan: AppPlan, kept: AppPlan) -> str | None:
        deployment = self._deployments.get(app)
        return "the app is deleted" if deployment is None else deployment.find_obstacle(plan, kept, self._launcher)

    def _most_gpus(self, app: str) -> float:
        deployment = self._deployments.get(app)
        return 0.0 if deployment is None else deployment.most_gpus(self._launcher)

    async def _load(self, deployment: Deployment, code: tuple[str, str]) -> None:
        """Loads an app in its own task: an app that is slow to load does not delay the rounds."""
        failed = True
        with self._retry_on_error(f"loading app {deployment.record.name}"):
            await deployment.load(self._describe)
            failed = False
        self._changed.set()
        if failed:
            await asyncio.sleep(RETRY_SECONDS)
        self._loading.remove(code)
        self._changed.set()

    async def _apply_groups(self, groups: dict[GroupKey, ExecutorGroup]) -> None:
        for key in self._managers.keys() - groups.keys():
            del self._managers[key]
        for key, group in groups.items():
            manager = self._managers.setdefault(key, TaskManager(key, self._launcher))
            with self._retry_on_error(f"applying executor group {key}"):
                await manager.apply(group)
        # An executor that no known app needs may belong to them.
        unreadable = self._apps.unknown | (self._routes.unknown & self._apps.records.keys())
        retained = {key for deployment in self._deployments.values() for key in deployment.retained_groups}
        # Gateways may serve an app that cannot be read by executors that belong to other apps, too.
        served = [self._routes.records[name].spec for name in unreadable & self._routes.records.keys()]
        routed = {GroupKey(key) for route in served for key in route.group_keys}
        with self._retry_on_error("stopping executors that no app needs"):
            await self._launcher.prune({*groups, *retained, *routed}, unreadable)

    async def _write_status(self, deployment: Deployment) -> None:
        record = deployment.record
        deployment.promote_if_ready(self._managers)
        await self._write_route(record, deployment.route)
        status = await deployment.status(self._managers, self._launcher)
        adaptation = None if self._adaptation is None else self._adaptation.status(record.name)
        exits = deployment.exits(self._launcher)
        if adaptation != status.adaptation or exits != status.exits:
            status = status.model_copy(update={"adaptation": adaptation, "exits": exits})
        if deployment.written == (record.version, status):
            return
        if status == record.status:
            deployment.written = record.version, status  # The next comparison finds the same objects.
            return
        try:
            updated = await self._store.update_status(APPS, record.name, status, record.version)
        except (ConflictError, NotFoundError):
            return  # Another process has changed the record: the watch delivers the change and starts the next round.
        # A change of a ConfigMap changes the spec of a record: only the watch delivers it, so that no change is missed.
        updated = replace(updated, spec=record.spec)
        deployment.record = updated
        deployment.written = (updated.version, status)
        self.metrics.count_rollout(record.name, record.status, status)
        if self._observer is not None:
            self._tasks.create_task(self._observer.on_status(replace(updated, status=status), record.status))
        if self._apps.replace(record, updated):
            self._changed.set()

    async def _write_route(self, app: AppRecord, route: Route | None) -> None:
        """Stores the route before the status, so that an app that serves has a route.

        Only controllers write routes, so a route that a user has changed is replaced.
        """
        known, is_readable = self._routes.records.get(app.name), app.name not in self._routes.unreadable
        if route is None or (known is not None and is_readable and known.spec == route):
            return
        try:
            if known is not None and is_readable and known.spec.app_uid == route.app_uid:
                with suppress(FieldConflictError):
                    self._routes.replace(known, await self._store.update_spec(ROUTES, app.name, route, known.version))
                    return
            if known is not None or not is_readable:
                await self._delete_route(app.name)
            self._routes.add(await self._store.create(ROUTES, app.name, route))
        except (ConflictError, NotFoundError, AlreadyExistsError):
            return  # The watch delivers the change and starts the next round.

    async def _delete_routes(self) -> None:
        """Deletes the routes of deleted apps."""
        routes = self._routes.records.keys() | self._routes.unknown
        for name in routes - self._apps.records.keys() - self._apps.unknown:
            with self._retry_on_error(f"deleting the route of app {name}"):
                await self._delete_route(name)

    async def _delete_route(self, name: str) -> None:
        with suppress(NotFoundError):
            await self._store.delete(ROUTES, name)
        self._routes.remove(name)
