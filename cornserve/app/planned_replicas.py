"""The replicas that an app with a plan has for itself. Other apps may add theirs to the same executor groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cornserve.app.record import GroupStatus
from cornserve.app.spec import AppSpec


class PlannedReplicas(NamedTuple):
    """The replicas of the executors with one name in the running cells of a plan, together.

    Args:
        planned: those of the plan.
        least: one for each of these executors.
        gpus: the GPUs or slots of a replica, at most.
        gpu_type: their type. None: any.
    """

    planned: int
    least: int
    gpus: int
    gpu_type: str | None

    def running(self, total: int | None) -> int:
        """Returns the replicas that should run. `total`: those that are set instead of the plan's, if any."""
        return self.planned if total is None else max(total, self.least)


def planned_replicas(spec: AppSpec, groups: Iterable[GroupStatus]) -> dict[str, PlannedReplicas]:
    """Returns the replicas of an app by the name of the executor. Nothing for executors that no running cell has.

    Args:
        groups: those of the app's status, which have the executors of the plan's options. They have each option twice
            while a restart replaces its group.
    """
    found: dict[str, PlannedReplicas] = {}
    if spec.plan is None:
        return found
    for executor, options in sorted({(group.executor, group.option) for group in groups}):
        # The status joins the options of one executor.
        names = [name for name in spec.plan.options if f",{name}," in f",{options},"]
        planned = sum(cell.replicas.get(name, 0) for _, cell in spec.plan.running_cells for name in names)
        if planned:
            option, other = spec.plan.options[names[0]], found.get(executor, PlannedReplicas(0, 0, 0, None))
            found[executor] = PlannedReplicas(
                other.planned + planned, other.least + 1, max(other.gpus, option.gpus), option.gpu_type
            )
    return found
