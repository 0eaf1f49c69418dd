"""The launcher of one machine. All state that must survive a crash is in the replicas' directories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence, Set
from pathlib import Path

from cornserve.app.record import FailureReason, ReplicaExit
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, GroupRefusedError, Replica, ReplicaId, SlotCount
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.leaked_shared_memory import SHARED_MEMORY
from cornserve.control.launcher.local.local_machine import LocalMachine
from cornserve.control.launcher.local.replica_ids import group_of
from cornserve.control.launcher.local.replica_supervisor import ReplicaSupervisor
from cornserve.control.launcher.local.slab_budget import SlabBudget
from cornserve.control.launcher.local.state_dir import StateDir
from cornserve.control.launcher.local.status_board import StatusBoard
from cornserve.control.launcher.local.uninterrupted_thread import finish_in_thread
from cornserve.control.launcher.local.warm_processes import WarmProcesses
from cornserve.home import Home
from cornserve.limits import Limits
from cornserve.pull_protocol import PullProtocol
from cornserve.task.spec import ExecutorSpec


class LocalLauncher:
    """Runs replicas as processes on this machine. Only one launcher may run per home.

    Args:
        tls: the directory with the files for TLS between processes, or None.
    """

    def __init__(
        self,
        home: Home,
        slots: DeviceSlots,
        *,
        tls: Path | None = None,
        drain_seconds: float = 30,
        queue: int = Limits().queue,
        slab_mib: int | None = None,
        transport: PullProtocol = PullProtocol.AUTO,
        first_delay: float = 1,
        longest_delay: float = 60,
    ) -> None:
        state_dir = StateDir(home.replicas)
        self._machine = LocalMachine(
            state_dir,
            slots,
            StatusBoard(),
            secret=home.secret,
            tls=tls,
            drain_seconds=drain_seconds,
            queue=queue,
            slab_mib=Limits().slab_mib if slab_mib is None else slab_mib,
            transport=transport,
            slab_budget=SlabBudget(SHARED_MEMORY, state_dir.segments),
            warm_processes=WarmProcesses(slots),
            first_delay=first_delay,
            longest_delay=longest_delay,
        )
        self._supervisors: list[ReplicaSupervisor] = []
        self._task_owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup

    async def start(self) -> None:
        adopted = await finish_in_thread(self._machine.state_dir.find_replicas)
        started = asyncio.Event()
        self._task_owner = asyncio.create_task(self._own_tasks(started))
        await started.wait()
        for replica_dir, process in adopted:
            self._machine.device_slots.mark_allocated(process.slots)
            self._add_supervisor(
                ReplicaSupervisor(group_of(replica_dir.id), process.spec, self._machine, adopted=(replica_dir, process))
            )

    async def _own_tasks(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            started.set()
            await asyncio.get_running_loop().create_future()  # Runs until `close` cancels this task.

    def _add_supervisor(self, supervisor: ReplicaSupervisor) -> None:
        self._supervisors.append(supervisor)
        task = self._tasks.create_task(supervisor.run())
        task.add_done_callback(lambda _: self._supervisors.remove(supervisor))

    async def apply(self, group: ExecutorGroup) -> None:
        if group.pod.template or group.pod.storage is not None:
            raise GroupRefusedError("pod_template and storage need Kubernetes: remove them from the app")
        slot_type = group.pod.gpu_type
        self._check_type(group.spec, slot_type)
        supervisors = self._wanted(group.key)
        for supervisor in supervisors:
            supervisor.claim(slot_type)
        for _ in range(group.replicas - len(supervisors)):
            self._add_supervisor(ReplicaSupervisor(group.key, group.spec, self._machine, slot_type))
        ready_first = sorted(supervisors, key=lambda supervisor: not supervisor.ready)
        for supervisor in ready_first[group.replicas :]:
            supervisor.retire()

    def _check_type(self, spec: ExecutorSpec, slot_type: str | None) -> None:
        types = self._machine.device_slots.types
        if slot_type is not None and slot_type not in types:
            count = f"{spec.gpus} slot{'' if spec.gpus == 1 else 's'}"
            known = f"its types are {', '.join(types)}" if types else "its slots have no types"
            raise GroupRefusedError(
                f"{spec.executor} needs {count} of the type {slot_type}, which this machine does not have: {known}: "
                f"name another type, or start the instance with `cornserve up --slots {slot_type}=COUNT`",
                FailureReason.UNKNOWN_GPU_TYPE,
            )

    async def delete(self, key: GroupKey) -> None:
        for supervisor in self._wanted(key):
            supervisor.retire()
        self._machine.status_board.forget_exits(key)

    async def prune(self, keep: set[GroupKey], unreadable: Set[str] = frozenset()) -> None:
        if unreadable:
            return  # The apps of replicas that an earlier launcher started are not known.
        for key in {supervisor.group for supervisor in self._supervisors} - keep:
            await self.delete(key)

    def _wanted(self, key: GroupKey) -> list[ReplicaSupervisor]:
        """Returns the supervisors of the group's wanted replicas, oldest first."""
        return [supervisor for supervisor in self._supervisors if supervisor.group == key and supervisor.wanted]

    def gpus(self, spec: ExecutorSpec) -> int:
        return spec.gpus

    def slots(self, slot_type: str | None) -> SlotCount:
        return self._machine.device_slots.count(slot_type)

    def replicas(self) -> list[Replica]:
        return self._machine.status_board.replicas()

    def exits(self, key: GroupKey) -> Sequence[ReplicaExit]:
        return self._machine.status_board.exits(key)

    def watch(self) -> AsyncIterator[list[Replica]]:
        return self._machine.status_board.watch()

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        return await finish_in_thread(self._machine.state_dir.logs, replica, lines)

    async def close(self) -> None:
        if self._task_owner is not None:
            self._task_owner.cancel()
            await asyncio.wait([self._task_owner])
        self._machine.warm_processes.close()
