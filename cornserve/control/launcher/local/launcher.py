"""The launcher of one machine. Everything that must survive it is in the folders of the replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Replica, ReplicaId
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.local_machine import LocalMachine
from cornserve.control.launcher.local.replica_supervisor import ReplicaSupervisor
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir, StateDir
from cornserve.control.launcher.local.status_board import StatusBoard
from cornserve.control.launcher.local.threads import finish_in_thread
from cornserve.home import Home
from cornserve.limits import Limits
from cornserve.task.spec import ExecutorSpec


class LocalLauncher:
    """One at a time per home."""

    def __init__(
        self,
        home: Home,
        slots: DeviceSlots,
        *,
        drain_seconds: float = 30,
        queue: int = Limits().queue,
        slab_mib: int = Limits().slab_mib,
        first_pause: float = 1,
        longest_pause: float = 60,
    ) -> None:
        folders = StateDir(home.replicas)
        self._machine = LocalMachine(
            folders, slots, StatusBoard(), drain_seconds, queue, slab_mib, first_pause, longest_pause
        )
        self._places: list[ReplicaSupervisor] = []
        self._owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup

    async def start(self) -> None:
        found = await finish_in_thread(self._machine.folders.find)
        owning = asyncio.Event()
        self._owner = asyncio.create_task(self._own_places(owning))
        await owning.wait()
        for folder, process in found:
            self._machine.slots.occupy(process.slots)
            self._add(process.spec, (folder, process))

    async def _own_places(self, owning: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            owning.set()
            await asyncio.get_running_loop().create_future()  # Until `close` cancels all.

    def _add(self, spec: ExecutorSpec, found: tuple[ReplicaDir, ProcessRecord] | None = None) -> None:
        place = ReplicaSupervisor(spec, self._machine, found)
        self._places.append(place)
        self._tasks.create_task(place.run()).add_done_callback(lambda _: self._places.remove(place))

    async def apply(self, group: ExecutorGroup) -> None:
        places = self._wanted(group.key)
        for place in places:
            place.claim()
        for _ in range(group.replicas - len(places)):
            self._add(group.spec)
        for place in _keep_first(places)[group.replicas :]:
            place.give_up()

    async def delete(self, key: GroupKey) -> None:
        for place in self._wanted(key):
            place.give_up()

    async def prune(self, keep: set[GroupKey]) -> None:
        for key in {place.group for place in self._places} - keep:
            await self.delete(key)

    def _wanted(self, key: GroupKey) -> list[ReplicaSupervisor]:
        """Oldest first."""
        return [place for place in self._places if place.group == key and place.wanted]

    def replicas(self) -> list[Replica]:
        return self._machine.board.replicas()

    def watch(self) -> AsyncIterator[list[Replica]]:
        return self._machine.board.watch()

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        return await finish_in_thread(self._machine.folders.logs, replica, lines)

    async def close(self) -> None:
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait([self._owner])


def _keep_first(places: list[ReplicaSupervisor]) -> list[ReplicaSupervisor]:
    """In the order in which they are worth keeping: those that are ready, and of these those that were longer."""
    return sorted(places, key=lambda place: not place.ready)
