"""Compares the slots that plans need with those that exist, before any of their executors starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from cornserve.app.record import FailureReason, ReplicaState
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher, Replica, SlotCount


def find_shortage(groups: Iterable[ExecutorGroup], options: Mapping[GroupKey, str], launcher: Launcher) -> str | None:
    """Returns which groups of a plan can never run at the same time, for users. None if all can.

    Args:
        options: the options of the plan that the groups run.
    """
    groups = list(groups)
    exceeded = _exceeded(groups, launcher)
    if exceeded is None:
        return None
    slot_type, needed, slots = exceeded
    parts = Counter[str]()
    for group in groups:
        if slot_type in (None, group.pod.gpu_type):
            parts[options[group.key]] += group.replicas * group.spec.gpus
    listed = ", ".join(f"{name} {count}" for name, count in parts.items() if count)
    return (
        f"the plan needs {_describe(needed, slots, slot_type)} ({listed}), but {slots.total} exist and {slots.free} "
        f"are free: plan for at most {slots.total}"
    )


def find_conflict(groups: Iterable[ExecutorGroup], launcher: Launcher) -> str | None:
    """Returns why the groups of an old and a new plan can never run at the same time, for users. None if they can."""
    exceeded = _exceeded(groups, launcher)
    if exceeded is None:
        return None
    slot_type, needed, slots = exceeded
    return (
        f"the plan has no cell of the running one, and both need {_describe(needed, slots, slot_type)} until the new "
        f"cells serve, but {slots.total} exist: delete the app first, or scale it to fewer GPUs"
    )


def have_room(groups: Iterable[ExecutorGroup], launcher: Launcher) -> bool:
    """Returns whether the missing replicas of the groups fit in the free slots, as far as the launcher knows."""
    observed = Counter(each.group for each in launcher.replicas() if _keeps_slots(each))
    return _fit(_needed((group, max(group.replicas - observed[group.key], 0)) for group in groups), launcher)


def _keeps_slots(replica: Replica) -> bool:
    """Whether the replica has slots and does not release them."""
    return replica.state is not ReplicaState.DRAINING and replica.reason != FailureReason.INSUFFICIENT_CAPACITY


def can_replace(groups: Iterable[ExecutorGroup], running: Iterable[ExecutorGroup], launcher: Launcher) -> bool:
    """Returns whether the groups fit in the free slots and those of the running groups."""
    needed = _needed((group, group.replicas) for group in groups)
    needed.subtract(_needed((group, group.replicas) for group in running))
    return _fit(needed, launcher)


def _needed(replicas: Iterable[tuple[ExecutorGroup, int]]) -> Counter[str | None]:
    """Returns the slots that numbers of replicas need, by type, and with the type None all of them."""
    needed = Counter[str | None]()
    for group, count in replicas:
        for slot_type in {group.pod.gpu_type, None}:
            needed[slot_type] += count * group.spec.gpus
    return needed


def _fit(needed: Mapping[str | None, int], launcher: Launcher) -> bool:
    counts = ((launcher.slots(slot_type), count) for slot_type, count in needed.items())
    return all(slots is None or count <= slots.free for slots, count in counts)


def _exceeded(groups: Iterable[ExecutorGroup], launcher: Launcher) -> tuple[str | None, int, SlotCount] | None:
    """Returns a type of which the groups need more slots than exist, with both numbers. None if they need fewer."""
    needed = _needed((group, group.replicas) for group in groups)
    for slot_type, count in sorted(needed.items(), key=lambda need: need[0] or "~"):
        slots = launcher.slots(slot_type)
        if slots is not None and count > slots.total:
            return slot_type, count, slots
    return None


def _describe(needed: int, slots: SlotCount, slot_type: str | None) -> str:
    return f"{needed} {slots.kind}s" + (f" of the type {slot_type}" if slot_type else "")
