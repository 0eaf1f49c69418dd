"""A controller with a fake launcher, and a client of its store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager
from uuid import uuid4

from cornserve.app.load import load_app
from cornserve.app.record import AppStatus, Phase, ReplicaExit, ReplicaState, Route
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSpec
from cornserve.app_host.describe import DescribeApp
from cornserve.app_host.description import AppDescription
from cornserve.control.controller import Controller
from cornserve.control.launcher.base import (
    ExecutorGroup,
    GroupKey,
    GroupRefusedError,
    LauncherError,
    Replica,
    ReplicaId,
    SlotCount,
)
from cornserve.control.planning.planner_process import Planner, run_planner
from cornserve.control.profiling.job import RunProfiler
from cornserve.control.store.base import APPS, ROUTES, Store
from cornserve.task.spec import ExecutorSpec
from tests.waiting import until


class FakeLauncher:
    """Records the applied groups. Tests set the state of the replicas with `show`."""

    def __init__(self, *, ready: bool = True, slots: int | None = None) -> None:
        self.groups: dict[GroupKey, ExecutorGroup] = {}
        self.failures = 0
        """Number of the next calls of `apply` that fail."""
        self.refusal: GroupRefusedError | LauncherError | None = None
        """The error of `apply`."""
        self.slot_count = None if slots is None else SlotCount("CPU slot", slots, slots)
        self.changes: list[tuple[GroupKey, int]] = []
        """The changes of the numbers of replicas."""
        self.becomes_ready = ready
        """Whether applied replicas are ready immediately."""
        self.last_exits: dict[GroupKey, list[ReplicaExit]] = {}
        self._replicas: dict[GroupKey, list[Replica]] = {}
        self._changed = asyncio.Event()

    async def start(self) -> None: ...

    async def apply(self, group: ExecutorGroup) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no more processes")
        if self.refusal is not None:
            raise self.refusal
        known = self.groups.get(group.key)
        is_new = known != group
        if difference := group.replicas - (0 if known is None else known.replicas):
            self.changes.append((group.key, difference))
        self.groups[group.key] = group
        if self.becomes_ready and is_new:
            self.show(group.key, *[ReplicaState.READY] * group.replicas)

    async def delete(self, key: GroupKey) -> None:
        group = self.groups.pop(key, None)
        if group is not None:
            self.changes.append((key, -group.replicas))
        self._replicas.pop(key, None)

    async def prune(self, keep: set[GroupKey], unreadable: Set[str] = frozenset()) -> None:
        for key in self.groups.keys() - keep:
            if unreadable.isdisjoint(owner.name for owner in self.groups[key].owners):
                await self.delete(key)

    def show(self, key: GroupKey, *states: ReplicaState, message: str = "", port: int = 1, reason: str = "") -> None:
        self._replicas[key] = [
            Replica(ReplicaId(f"{key}-{index}"), key, state, message, f"{key}:{port + index}", reason=reason)
            for index, state in enumerate(states)
        ]
        self._changed.set()

    def gpus(self, spec: ExecutorSpec) -> int:
        return spec.gpus

    def slots(self, slot_type: str | None) -> SlotCount | None:
        return self.slot_count

    def replicas(self) -> list[Replica]:
        return [replica for replicas in self._replicas.values() for replica in replicas]

    def exits(self, key: GroupKey) -> list[ReplicaExit]:
        return self.last_exits.get(key, [])

    async def watch(self) -> AsyncIterator[list[Replica]]:
        while True:
            yield self.replicas()
            await self._changed.wait()
            self._changed.clear()

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        return []

    async def close(self) -> None: ...


class StoreClient:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def deploy(self, name: str, spec: AppSpec) -> None:
        await self.store.create(APPS, name, spec)

    async def redeploy(self, name: str, spec: AppSpec) -> None:
        record = await self.store.get(APPS, name)
        await self.store.update_spec(APPS, name, spec, record.version)

    async def wait_for_status(self, name: str, condition: Callable[[AppStatus], bool]) -> AppStatus:
        async def holds() -> bool:
            return condition((await self.store.get(APPS, name)).status)

        await until(holds)
        return (await self.store.get(APPS, name)).status

    async def wait_until_source(self, name: str, source: str) -> None:
        """Waits until the app's route has this source."""

        async def holds() -> bool:
            routes = (await self.store.list(ROUTES)).records
            return any(record.name == name and record.spec.spec.inline_source == source for record in routes)

        await until(holds)

    async def wait_until_served(self, name: str, generation: int = 1) -> Route:
        await self.wait_for_status(
            name, lambda status: status.phase is Phase.SERVING and status.generation == generation
        )
        return (await self.store.get(ROUTES, name)).spec


async def describe(name: str, spec: AppSpec) -> AppDescription:
    """Describes an app of these tests, whose code is harmless, in this process."""
    module = f"app_of_the_controller_test_{uuid4().hex}"
    try:
        return AppDescription.of_app(load_app(name, spec, module))
    finally:
        unload_app(module)


@asynccontextmanager
async def running_controller(
    client: StoreClient,
    launcher: FakeLauncher,
    describe: DescribeApp = describe,
    planner: Planner = run_planner,
    profiler: RunProfiler | None = None,
) -> AsyncIterator[None]:
    controller = Controller(client.store, launcher, describe, planner=planner, profiler=profiler)
    running = asyncio.create_task(controller.run())
    yield
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
