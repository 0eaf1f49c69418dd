"""The device on which options are measured, and what measurements depend on besides the option."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from cornserve.app.record import AppView
from cornserve.app.settings import MAX_REPLICAS
from cornserve.control.launcher.base import SlotCount
from cornserve.control.launcher.local.slot_types import SlotType, bind_slots, parse_slot_types
from cornserve.control.launcher.local.state_dir import held_slots
from cornserve.home import Home
from cornserve.instance import Instance
from cornserve.profiler.errors import ProfilingError
from cornserve.profiler.results import Conditions, MemoryUse
from cornserve.task.spec import ExecutorSpec, find_executor
from cornserve_tasklib.directory_digest import MAX_FILES, directory_digest

if TYPE_CHECKING:
    from cornserve_planner.solve.budget import Budget

SLAB_SUFFIX = ".slab"

ANY_NODE = "cluster"
"""The name of the device of pods that run on any node."""

ENGINES = ("vllm", "torch", "transformers")


class UnknownDeviceError(ProfilingError):
    """The instance has no such device. The message is for users."""


class NoSlotsError(ProfilingError):
    """The device has too few slots to measure an option. The message is for users."""


@dataclass(frozen=True, slots=True)
class Device:
    """Slots of a type, the GPUs or cores of the machine, or the nodes of a cluster.

    Args:
        name: the type, as the planner's GPU types.
        slot_type: the type of slots that executors need to select, or None.
        slots: the number of its slots, or None if it is unknown.
        uses_memory: whether executors run in the memory of this machine, not in that of its GPUs or of a cluster.
        cpu_image, gpu_image: the images of executors without and with GPUs, as far as they are known.
    """

    name: str
    hardware: str
    driver: str
    slot_type: str | None = None
    slots: SlotCount | None = None
    cpu_image: str = ""
    gpu_image: str = ""
    uses_memory: bool = True

    @classmethod
    def find(cls, home: Home, name: str | None) -> Device:
        """Returns the device of the running instance. Raises `UnknownDeviceError`.

        Args:
            name: a slot type of the instance, or a name for its devices; by default, the first one.
        """
        instance = Instance.find_running(home)
        types = parse_slot_types([] if instance is None else instance.slots)
        if types:
            found = next((slot_type for slot_type in types if name in (None, slot_type.name)), None)
            if found is None:
                known = ", ".join(slot_type.name for slot_type in types)
                raise UnknownDeviceError(f"the instance has no slots of the type {name!r}: give one of {known}")
            hardware = f"{found.cores} core{'' if found.cores == 1 else 's'} of {_processor()}"
            return cls(found.name, hardware, platform.release(), found.name, _slots(types, found, home))
        gpu = _nvidia("name")
        if gpu:
            gpu_name = name or re.sub(r"[^A-Za-z0-9._-]+", "-", gpu)
            return cls(gpu_name, gpu, _nvidia("driver_version"), uses_memory=False)
        cores = len(os.sched_getaffinity(0))
        return cls(name or "cpu", f"{cores} cores of {_processor()}", platform.release())

    @classmethod
    def of_cluster(cls, name: str | None, place: str, *, cpu_image: str = "", gpu_image: str = "") -> Device:
        """Returns the device of pods.

        Args:
            name: a GPU type of the installation; by default, any node.
            place: the cluster, for users.
        """
        return cls(
            name or ANY_NODE,
            hardware=place,
            driver="",
            slot_type=name,
            cpu_image=cpu_image,
            gpu_image=gpu_image,
            uses_memory=False,
        )

    def with_free_slots(self, home: Home, apps: Iterable[AppView]) -> Device:
        """Returns the device with the slots that these apps leave free. Other replicas are ending."""
        instance = Instance.find_running(home)
        types = parse_slot_types([] if instance is None else instance.slots)
        found = next((slot_type for slot_type in types if slot_type.name == self.slot_type), None)
        groups = {group.key for app in apps for group in app.status.groups}
        return self if found is None else replace(self, slots=_slots(types, found, home, groups))

    def check_slots(self, needs: Mapping[str, int]) -> None:
        """Raises `NoSlotsError` if an option cannot be measured, as far as is known before it starts.

        Args:
            needs: by option, the slots of a replica.
        """
        if self.slots is None:
            return
        for option, needed in needs.items():
            if needed > self.slots.free:
                slots = f"{self.slots.kind}s of the type {self.name}"
                remedy = "start more slots" if needed > self.slots.total else "delete an app, or scale it down"
                raise NoSlotsError(
                    f"{option} cannot be measured: a replica needs {needed} {slots}, but "
                    f"{self.slots.total} exist and {self.slots.free} are free: {remedy}"
                )

    def replicas(self, gpus: int) -> int:
        """Returns the replicas of an option that are measured together: as in service, they occupy all free slots.

        Replicas without slots, and those of devices with an unknown number of slots, are measured alone.

        Args:
            gpus: the slots of a replica.
        """
        return max(1, min(self.slots.free // gpus, MAX_REPLICAS)) if self.slots is not None and gpus else 1

    def check_plan(self, budget: Budget, where: str) -> None:
        """Raises `NoSlotsError` if the plan is for more slots than exist, as far as is known.

        Args:
            budget: the limits of the plan.
            where: the name of the budget, for users.
        """
        gpus = budget.gpus_of.get(self.name, budget.gpus)
        if self.slots is not None and gpus is not None and gpus > self.slots.total:
            raise NoSlotsError(f"{where} {gpus}: {self.slots.total} {self.slots.kind}s of the type {self.name} exist")

    def conditions(self, spec: ExecutorSpec) -> Conditions:
        image = self.gpu_image if spec.gpus else self.cpu_image
        return Conditions(
            model=_model_digest(spec),
            versions=_versions(spec) | ({"image": image} if image else {}),
            device=self.name,
            hardware=self.hardware,
            driver=self.driver,
        )


def _slots(
    types: Sequence[SlotType], counted: SlotType, home: Home, groups: Collection[str] | None = None
) -> SlotCount:
    """Returns the number of slots of a type.

    Args:
        groups: the keys of the executor groups whose slots are not free; by default, those of all.
    """
    held = held_slots(home.replicas, groups)
    free = sum(slot.type == counted.name and slot.id not in held for slot in bind_slots(types))
    return SlotCount("CPU slot", counted.count, free)


def process_memory(pid: int, before: MemoryUse | None = None) -> MemoryUse | None:
    """Returns the memory of a process and its children, with the peak since `before`, or None if it ended.

    Memory that several processes share counts once (proportional set size). Slabs of other executors, from which the
    process reads its inputs, do not count.
    """
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
        slabs = {process: _mapped_slabs(process) for process in processes}
        own = {path for mapped in slabs.values() for path, is_writable in mapped.items() if is_writable}
        now = sum(process.memory_full_info().pss for process in processes)
        for process in (process for process, mapped in slabs.items() if not mapped.keys() <= own):
            maps = process.memory_maps(grouped=True)
            now -= sum(mapped.pss for mapped in maps if mapped.path in slabs[process].keys() - own)
    except (psutil.Error, OSError):
        return before
    return (
        MemoryUse(started=now, peak=now)
        if before is None
        else MemoryUse(started=before.started, peak=max(before.peak, now))
    )


def _mapped_slabs(process: psutil.Process) -> dict[str, bool]:
    """Returns whether the process can write to the slabs that it maps, by path. Raises `OSError`."""
    slabs: dict[str, bool] = {}
    for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
        if line.endswith(SLAB_SUFFIX):
            _, permissions, _, _, _, path = line.split(maxsplit=5)
            slabs[path] = slabs.get(path, False) or "w" in permissions
    return slabs


def _model_digest(spec: ExecutorSpec) -> str:
    """Returns the revision, or a digest of the files in the model's directory."""
    model, revision = spec.config.get("model_id"), spec.config.get("revision")
    if not isinstance(model, str):
        return ""
    directory = Path(model)
    if not directory.is_dir():
        return f"{model}@{revision or 'main'}"
    if not (digest := directory_digest(directory)):
        raise ProfilingError(f"the directory {model} has no readable files, or more than {MAX_FILES}")
    return digest[:16]


def _versions(spec: ExecutorSpec) -> dict[str, str]:
    """Returns the versions of Cornserve, of the executor's package and of installed engines."""
    distribution = find_executor(spec.executor).dist
    found = {"cornserve": version("cornserve")}
    if distribution is not None:
        found[distribution.name] = distribution.version
    if spec.config.get("model_id") is not None:
        for package in ENGINES:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
    return found


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.machine()


def _nvidia(field: str) -> str:
    """Returns a property of the first GPU, or an empty text without a GPU."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return output.partition("\n")[0].strip()
