"""The cells of the groups that were applied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Replica
from cornserve.control.launcher.kubernetes.cells import CellPlacement
from cornserve.control.launcher.kubernetes.manifests import GroupManifests, render_group
from cornserve.control.launcher.kubernetes.names import AVOIDED_NODES_ANNOTATION, CELL_LABEL
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.pods import has_ended
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.replica_reason import ReplicaReason


class CellGroups:
    """Renders groups as the state of their cells requires."""

    def __init__(self, settings: ClusterSettings, deployments: Informer) -> None:
        self._settings = settings
        self._deployments = deployments
        self._groups: dict[GroupKey, tuple[str, ExecutorGroup]] = {}
        """The groups that belong to a cell, with the name of the cell."""
        self._cells: dict[str, CellPlacement] = {}
        self._rendered: dict[GroupKey, tuple[ExecutorGroup, frozenset[str], GroupManifests]] = {}
        self._pending: set[GroupKey] = set()
        """Groups that must be applied again."""

    def render(self, group: ExecutorGroup) -> GroupManifests:
        """Raises `GroupRefusedError`."""
        if group.cell is None:
            return self._render(group)
        cell = self._cells.get(group.cell.name) or self._find(group.cell.name)
        replicas = 0 if cell.is_released else group.replicas
        manifests = self._render(replace(group, replicas=replicas), cell.avoided)
        self._cells[group.cell.name] = cell
        self._groups[group.key] = group.cell.name, group
        (cell.members.add if group.replicas else cell.members.discard)(group.key)
        return manifests

    def _render(self, group: ExecutorGroup, avoided: frozenset[str] = frozenset()) -> GroupManifests:
        """Renders a group only if it has changed: a controller applies all groups in each round."""
        last = self._rendered.get(group.key)
        if last is None or last[:2] != (group, avoided):
            last = (group, avoided, render_group(group, self._settings, avoided=avoided))
            self._rendered[group.key] = last
        return last[2]

    def _find(self, name: str) -> CellPlacement:
        """Returns the cell as an earlier launcher has left it: another template would replace its pods."""
        for deployment in self._deployments.objects.values():
            metadata = deployment["metadata"]
            if metadata["labels"].get(CELL_LABEL) == name:
                avoided = metadata.get("annotations", {}).get(AVOIDED_NODES_ANNOTATION, "")
                return CellPlacement(self._settings.cell_patience_seconds, filter(None, avoided.split(",")))
        return CellPlacement(self._settings.cell_patience_seconds)

    def forget(self, key: GroupKey) -> None:
        """Removes a group that is deleted."""
        name, _ = self._groups.pop(key, ("", None))
        self._pending.discard(key)
        self._rendered.pop(key, None)
        if name:
            self._cells[name].members.discard(key)
            if not any(other == name for other, _ in self._groups.values()):
                del self._cells[name]

    def update(self, pods: Mapping[str, JsonObject], now: float) -> None:
        """Observes the pods."""
        if not self._cells:
            return
        by_cell = defaultdict[str, list[JsonObject]](list)
        for pod in (pod for pod in pods.values() if not has_ended(pod)):
            by_cell[pod["metadata"]["labels"].get(CELL_LABEL, "")].append(pod)
        changed = {name for name, cell in self._cells.items() if cell.update(by_cell[name], now)}
        self._pending |= {key for key, (name, _) in self._groups.items() if name in changed}

    def pending(self) -> Iterator[ExecutorGroup]:
        """Yields the groups that must be applied again, each as it was rendered last; call `mark_applied` for each."""
        for key in list(self._pending):
            if key in self._pending:  # It may have been removed meanwhile.
                yield self._groups[key][1]

    def mark_applied(self, key: GroupKey) -> None:
        self._pending.discard(key)

    @property
    def deadline(self) -> float | None:
        """The time of the next `update` that can have an effect without a change of pods, or None."""
        return min((cell.deadline for cell in self._cells.values() if cell.deadline is not None), default=None)

    def explain(self, replica: Replica) -> Replica:
        """Adds the reason to a replica whose cell is released."""
        name, _ = self._groups.get(replica.group, ("", None))
        if not name or not self._cells[name].is_released:
            return replica
        message = (
            f"no single {self._settings.topology_key} can run all executors of cell {name}: "
            f"{self._cells[name].obstacle} The cell has released its nodes and tries again"
        )
        return replace(replica, message=message, reason=ReplicaReason.CELL_UNPLACEABLE)
