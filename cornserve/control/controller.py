"""The controller: makes what runs match what is stored, and writes down how far it is.

It is level-triggered: every round looks at all that is wanted and all that is observed, so nothing is lost when it
crashes, and a round that fails is simply done again. What fails for one app or group holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cornserve.control.deployment import Deployment, largest
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import (
    APPS,
    AppRecord,
    Change,
    ChangeType,
    ConflictError,
    Listing,
    NotFoundError,
    Store,
)
from cornserve.control.store.list_watch import list_and_watch
from cornserve.control.task_manager import TaskManager

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Controller:
    def __init__(self, store: Store, launcher: Launcher) -> None:
        self._store = store
        self._launcher = launcher
        self.metrics = ControllerMetrics(launcher)
        self._records: dict[str, AppRecord] = {}
        self._deployments: dict[str, Deployment] = {}
        self._managers: dict[GroupKey, TaskManager] = {}
        self._loading: set[tuple[str, str]] = set()
        """Which code of which app (by its uid)."""
        self._tasks: asyncio.TaskGroup
        self._due = asyncio.Event()
        self._synced = asyncio.Event()
        self._retries = False
        """Whether the next round comes even if nothing changes."""

    async def run(self) -> None:
        """Runs for ever."""
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._follow_store())
            self._tasks.create_task(self._follow_launcher())
            self._tasks.create_task(self._reconcile())

    async def _follow_store(self) -> None:
        async for news in list_and_watch(self._store, APPS):
            match news:
                case Listing(records):
                    self._records = {record.name: record for record in records}
                    self._synced.set()
                case Change(ChangeType.DELETED, record=record):
                    self._records.pop(record.name, None)
                case Change(record=record):
                    self._records[record.name] = record
            self._due.set()

    async def _follow_launcher(self) -> None:
        async for _ in self._launcher.watch():
            self._due.set()

    async def _reconcile(self) -> None:
        await self._synced.wait()  # before that, all that runs would look unwanted
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS if self._retries else None):
                    await self._due.wait()
            self._due.clear()
            self._retries = False
            with self.metrics.round(), self._apart("this round"):
                await self._round()

    @contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """Whatever fails inside is written down and comes again; what follows goes on."""
        try:
            yield
        except Exception:
            log.exception("%s: failed, and is tried again in %s s", what, RETRY_SECONDS)
            self.metrics.error()
            self._retries = True

    async def _round(self) -> None:
        self._take_records()
        await self._want(largest(group for it in self._deployments.values() for group in it.groups().values()))
        observed = self._launcher.replicas()
        self.metrics.observe(observed)
        self.metrics.retain(set(self._deployments), set(self._managers))
        for manager in self._managers.values():
            manager.observe(observed)
        for name, deployment in self._deployments.items():
            with self._apart(f"the status of app {name}"):
                await self._write_status(deployment)

    def _take_records(self) -> None:
        records = dict(self._records)
        for name, deployment in list(self._deployments.items()):
            if name not in records or records[name].uid != deployment.record.uid:
                del self._deployments[name]
        for name, record in records.items():
            deployment = self._deployments.setdefault(name, Deployment(record))
            deployment.take(record)
            code = (record.uid, record.spec.code)
            if deployment.is_to_be_loaded and code not in self._loading:
                self._loading.add(code)
                self._tasks.create_task(self._load(deployment, code))

    async def _load(self, deployment: Deployment, code: tuple[str, str]) -> None:
        """Beside the rounds: code that is slow to import holds up no other app."""
        failed = True
        with self._apart(f"app {deployment.record.name}"):
            await deployment.load()
            failed = False
        self._due.set()
        if failed:
            await asyncio.sleep(RETRY_SECONDS)
        self._loading.remove(code)
        self._due.set()

    async def _want(self, groups: dict[GroupKey, ExecutorGroup]) -> None:
        for key in self._managers.keys() - groups.keys():
            del self._managers[key]
        for key, group in groups.items():
            manager = self._managers.setdefault(key, TaskManager(key, self._launcher))
            with self._apart(f"executors {key}"):
                await manager.want(group)
        with self._apart("ending executors that no app needs"):
            await self._launcher.prune({*groups, *(key for it in self._deployments.values() for key in it.left_alone)})

    async def _write_status(self, deployment: Deployment) -> None:
        record = deployment.record
        deployment.take_over(self._managers)
        status = await deployment.status(self._managers, self._launcher)
        if status == record.status:
            return
        try:
            updated = await self._store.update_status(APPS, record.name, status, record.version)
        except (ConflictError, NotFoundError):
            return  # somebody was quicker; the watch brings the newer record, and with it the next round
        deployment.record = updated
        self.metrics.status(record.name, record.status, status)
        if self._records.get(record.name) is record:
            self._records[record.name] = updated
        self._due.set()
