"""The controller: makes what runs match what is stored, and writes down how far it is.

It is level-triggered: every round looks at all that is wanted and all that is observed, so nothing is lost when it
crashes, and a round that fails is simply done again.
"""

from __future__ import annotations

import asyncio
import logging

from cornserve.control.deployment import Deployment
from cornserve.control.launcher.base import GroupKey, Launcher
from cornserve.control.store.base import (
    APPS,
    AppRecord,
    ChangeType,
    ConflictError,
    ExpiredError,
    NotFoundError,
    Store,
)
from cornserve.control.task_manager import TaskManager
from cornserve.task.spec import ExecutorSpec

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Controller:
    def __init__(self, store: Store, launcher: Launcher) -> None:
        self._store = store
        self._launcher = launcher
        self._records: dict[str, AppRecord] = {}
        self._deployments: dict[str, Deployment] = {}
        self._managers: dict[str, TaskManager] = {}
        self._due = asyncio.Event()
        self._synced = asyncio.Event()

    async def run(self) -> None:
        """Runs for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_store())
            tasks.create_task(self._follow_launcher())
            tasks.create_task(self._reconcile())

    async def _follow_store(self) -> None:
        while True:
            listing = await self._store.list(APPS)
            self._records = {record.name: record for record in listing.records}
            self._synced.set()
            self._due.set()
            try:
                async for change in self._store.watch(APPS, listing.version):
                    if change.type is ChangeType.DELETED:
                        self._records.pop(change.record.name, None)
                    else:
                        self._records[change.record.name] = change.record
                    self._due.set()
            except ExpiredError:
                log.info("missed changes of the store, reading it anew")

    async def _follow_launcher(self) -> None:
        async for _ in self._launcher.watch():
            self._due.set()

    async def _reconcile(self) -> None:
        await self._synced.wait()  # before that, all that runs would look unwanted
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._round()
            except Exception:
                log.exception("this round failed, the next is in %s s", RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
                self._due.set()

    async def _round(self) -> None:
        await self._take_records()
        await self._want(self._groups())
        observed = self._launcher.replicas()
        for manager in self._managers.values():
            manager.observe(observed)
        for deployment in self._deployments.values():
            await self._write_status(deployment)

    async def _take_records(self) -> None:
        records = dict(self._records)
        for name, deployment in list(self._deployments.items()):
            if name not in records or records[name].uid != deployment.record.uid:
                del self._deployments[name]
        for name, record in records.items():
            deployment = self._deployments.setdefault(name, Deployment(record))
            await deployment.take(record)

    def _groups(self) -> dict[str, tuple[ExecutorSpec, int]]:
        """The groups that the apps want together: where they share one, the largest count holds."""
        groups: dict[str, tuple[ExecutorSpec, int]] = {}
        for deployment in self._deployments.values():
            for key, (spec, replicas) in deployment.groups().items():
                groups[key] = (spec, max(replicas, groups[key][1] if key in groups else 0))
        return groups

    async def _want(self, groups: dict[str, tuple[ExecutorSpec, int]]) -> None:
        for key in self._managers.keys() - groups.keys():
            del self._managers[key]
        for key, (spec, replicas) in groups.items():
            manager = self._managers.setdefault(key, TaskManager(spec, self._launcher))
            await manager.want(replicas)
        await self._launcher.prune({GroupKey(key) for key in groups})

    async def _write_status(self, deployment: Deployment) -> None:
        record = deployment.record
        status = await deployment.status(self._managers, self._launcher)
        if status == record.status:
            return
        try:
            updated = await self._store.update_status(APPS, record.name, status, record.version)
        except (ConflictError, NotFoundError):
            return  # somebody was quicker; the watch brings the newer record, and with it the next round
        deployment.record = updated
        if self._records.get(record.name) is record:
            self._records[record.name] = updated
        self._due.set()
