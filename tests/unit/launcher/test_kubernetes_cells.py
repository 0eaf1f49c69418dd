"""The placement of cells, as a sequence of observations."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cornserve.control.launcher.base import AppOwner, ExecutorCell, ExecutorGroup, GroupKey
from cornserve.control.launcher.kubernetes import ClusterSettings
from cornserve.control.launcher.kubernetes.cell_groups import CellGroups
from cornserve.control.launcher.kubernetes.cells import CellPlacement, avoid_nodes
from cornserve.kubernetes.informer import Informer
from cornserve.task.spec import ExecutorSpec

A, B = GroupKey("a-1"), GroupKey("b-1")


def pod(group: GroupKey, node: str = "", *, is_ready: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    if not node:
        reason = {"reason": "Unschedulable", "message": "0/2 nodes are available."}
        conditions.append({"type": "PodScheduled", "status": "False"} | reason)
    return {
        "metadata": {"labels": {"cornserve.ai/executor": group}},
        "spec": {"nodeName": node} if node else {},
        "status": {"conditions": conditions},
    }


@pytest.fixture
def cell() -> CellPlacement:
    cell = CellPlacement(patience_seconds=10)
    cell.members = {A, B}
    return cell


STRANDED = [pod(A, "node-1"), pod(B)]


def released(cell: CellPlacement, now: float = 10) -> float:
    """Lets the cell release its nodes and returns the time of the next attempt."""
    assert not cell.update(STRANDED, now - 10)
    assert cell.update(STRANDED, now)
    assert cell.deadline is not None
    return cell.deadline


def test_a_cell_waits_before_it_releases_its_nodes(cell: CellPlacement) -> None:
    assert not cell.update(STRANDED, 0)
    assert cell.deadline == 10
    assert not cell.update(STRANDED, 9.9)
    assert cell.update(STRANDED, 10)
    assert cell.is_released
    assert cell.obstacle == "0/2 nodes are available."


def test_the_next_attempt_avoids_the_node_and_waits_until_its_pods_have_ended(cell: CellPlacement) -> None:
    again = released(cell)
    assert not cell.update([], again - 0.1)
    assert not cell.update([pod(A, "node-1")], again)
    assert cell.update([], again)
    assert not cell.is_released
    assert cell.avoided == {"node-1"}


def test_a_cell_whose_nodes_are_all_avoided_avoids_none(cell: CellPlacement) -> None:
    again = released(cell)
    assert cell.update([], again)
    nowhere = [pod(A), pod(B)]
    assert not cell.update(nowhere, again)
    assert cell.update(nowhere, again + 10.1)
    assert cell.avoided == frozenset()


def test_a_cell_that_holds_nothing_waits(cell: CellPlacement) -> None:
    assert not any(cell.update([pod(A), pod(B)], now) for now in (0, 10, 20, 30))
    assert not cell.is_released


def test_a_cell_that_can_be_placed_in_time_stays(cell: CellPlacement) -> None:
    placed = [pod(A, "node-1"), pod(B, "node-1")]
    assert not any(cell.update(pods, now) for pods, now in ((STRANDED, 0), (placed, 9), (STRANDED, 10), (placed, 19)))


def test_a_cell_that_serves_is_never_released(cell: CellPlacement) -> None:
    serving = [pod(A, "node-1", is_ready=True), pod(B, "node-1", is_ready=True), pod(B)]
    assert not any(cell.update(serving, now) for now in (0, 10, 20, 30))


def test_a_cell_without_a_ready_member_is_released_although_others_are_ready(cell: CellPlacement) -> None:
    broken = [pod(A, "node-1", is_ready=True), pod(B)]
    assert not cell.update(broken, 0)
    assert cell.update(broken, 10)


def test_pauses_grow_until_the_cell_serves(cell: CellPlacement) -> None:
    pauses, now = [], 10.0
    for _ in range(6):
        again = released(cell, now)
        pauses.append(again - now)
        assert cell.update([], again)
        now = again + 10
    assert 5 <= pauses[0] <= 15
    assert pauses[-1] >= 50
    cell.update([pod(A, "node-2", is_ready=True), pod(B, "node-2", is_ready=True)], now)
    assert released(cell, now + 20) - (now + 20) <= 15


def test_avoided_nodes_restrict_every_term_of_a_node_affinity() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    rack = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone, rack]}}
    template = {"spec": {"affinity": {"nodeAffinity": required, "podAffinity": {"some": "term"}}}}
    names = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("n-1", "n-2")]

    affinity = avoid_nodes(template, {"n-2", "n-1"})["spec"]["affinity"]

    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{**zone, "matchFields": names}, {**rack, "matchFields": names}]
    assert affinity["podAffinity"] == {"some": "term"}
    assert avoid_nodes(template, ()) == template


def cell_groups() -> CellGroups:
    devices = {"cpu": {"image": "registry/cpu:1"}, "gpu": {"image": "registry/gpu:1"}}
    settings = ClusterSettings.model_validate({"instance": "cs", "secretName": "cs-secret", **devices})
    return CellGroups(settings, cast(Informer, SimpleNamespace(objects={})))


def test_groups_of_a_cell_are_applied_again_as_they_are_then() -> None:
    groups, cell = cell_groups(), ExecutorCell("c", 3)
    applied = [ExecutorGroup(ExecutorSpec(executor=name), 1, cell=cell) for name in ("a", "b", "c")]
    pods: dict[str, Any] = {}
    for group, node in zip(applied, ("node-1", "", ""), strict=True):
        groups.render(group)
        pods[group.key] = pod(group.key, node)
        pods[group.key]["metadata"]["labels"]["cornserve.ai/cell"] = "c"
    for now in (0, 60):
        groups.update(pods, now)

    pending = groups.pending()
    first = next(pending)
    removed, changed = (group for group in applied if group is not first)
    groups.forget(removed.key)
    groups.render(replace(changed, replicas=2))

    assert [group.replicas for group in pending] == [2]


def test_a_group_is_rendered_again_only_if_it_has_changed() -> None:
    groups, spec = cell_groups(), ExecutorSpec(executor="llm")
    first = groups.render(ExecutorGroup(spec, 1))
    assert groups.render(ExecutorGroup(spec, 1)) is first
    assert groups.render(ExecutorGroup(spec, 2)).replicas == 2
    owner = AppOwner("a", "uid-a")
    [reference] = groups.render(ExecutorGroup(spec, 2, owners=(owner,))).deployment["metadata"]["ownerReferences"]
    assert reference["uid"] == owner.uid
