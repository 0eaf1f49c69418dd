"""Cells on a real control plane, with nodes whose pods are processes."""

from __future__ import annotations

import asyncio

import pytest

from cornserve.control.launcher.base import ExecutorCell, ExecutorGroup, Replica, ReplicaId
from cornserve.kubernetes.resources import POD_GROUPS, PODS
from tests.integration.launcher.cluster_site import ClusterSite
from tests.integration.launcher.conformance import ECHO, OTHER, ids, observed, ready, ready_groups
from tests.waiting import until

ONE_GPU = ECHO.model_copy(update={"gpus": 1, "config": {"prefix": "one: "}})
ALSO_ONE_GPU = ECHO.model_copy(update={"gpus": 1, "config": {"prefix": "also: "}})
ANY_ONE_GPU = ECHO.model_copy(update={"gpus": 1, "config": {"prefix": "any: "}})
CELL = ExecutorCell("a", pods=2)


@pytest.mark.slow
async def test_a_half_free_node_never_strands_a_cell(two_nodes: ClusterSite) -> None:
    async with two_nodes.open() as launcher:
        blocker = ExecutorGroup(OTHER.model_copy(update={"gpus": 2}), 1)
        await launcher.apply(blocker)
        await observed(launcher, ready(1))
        members = [ExecutorGroup(ONE_GPU, 1, cell=CELL), ExecutorGroup(ALSO_ONE_GPU, 1, cell=CELL)]
        for member in members:
            await launcher.apply(member)

        def is_released(replicas: list[Replica]) -> bool:
            own = [replica for replica in replicas if replica.group != blocker.key]
            return [replica.reason for replica in own] == ["CellUnplaceable"] * 2

        replicas = await observed(launcher, is_released)
        assert "Insufficient nvidia.com/gpu" in replicas[-1].message
        await launcher.apply(ExecutorGroup(ANY_ONE_GPU, 1))  # The half-free node is available to others.
        await observed(launcher, lambda replicas: ANY_ONE_GPU.key in ready_groups(replicas))
        await launcher.delete(blocker.key)
        keys = {member.key for member in members}
        replicas = await observed(launcher, lambda replicas: ready_groups(replicas) >= keys)
        pods = [await two_nodes.client.get(PODS, each.id) for each in replicas if each.group in keys]
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 1


@pytest.mark.slow
async def test_a_pod_group_holds_no_node_before_all_of_its_pods_fit(two_nodes: ClusterSite) -> None:
    async with two_nodes.open(cellPlacement="PodGroup") as launcher:
        blocker = ExecutorGroup(OTHER.model_copy(update={"gpus": 2}), 1)
        await launcher.apply(blocker)
        await observed(launcher, ready(1))
        members = [ExecutorGroup(ONE_GPU, 1, cell=CELL), ExecutorGroup(ALSO_ONE_GPU, 1, cell=CELL)]
        for member in members:
            await launcher.apply(member)
        keys = {member.key for member in members}

        def is_waiting(replicas: list[Replica]) -> bool:
            own = [replica for replica in replicas if replica.group in keys]
            return [replica.reason for replica in own] == ["InsufficientCapacity"] * 2

        replicas = await observed(launcher, is_waiting)
        pods = [await two_nodes.client.get(PODS, each.id) for each in replicas if each.group in keys]
        assert not any("nodeName" in pod["spec"] for pod in pods)
        await launcher.apply(ExecutorGroup(ANY_ONE_GPU, 1))
        await observed(launcher, lambda replicas: ANY_ONE_GPU.key in ready_groups(replicas))
        await launcher.delete(blocker.key)
        replicas = await observed(launcher, lambda replicas: ready_groups(replicas) >= keys)
        placed = [await two_nodes.client.get(PODS, each.id) for each in replicas if each.group in keys]
        assert {pod["metadata"]["name"] for pod in placed} == {pod["metadata"]["name"] for pod in pods}
        nodes = {pod["spec"]["nodeName"] for pod in placed}
        assert len(nodes) == 1
        gone = ReplicaId(pods[0]["metadata"]["name"])
        await two_nodes.client.delete(PODS, gone)  # A single pod of the cell is replaced.
        replicas = await observed(
            launcher, lambda replicas: gone not in ids(replicas) and ready_groups(replicas) >= keys
        )
        healed = [await two_nodes.client.get(PODS, each.id) for each in replicas if each.group in keys]
        assert {pod["spec"]["nodeName"] for pod in healed} == nodes


@pytest.mark.slow
async def test_a_pod_group_that_someone_deletes_is_restored(two_nodes: ClusterSite) -> None:
    members = [ExecutorGroup(ONE_GPU, 1, cell=CELL), ExecutorGroup(ALSO_ONE_GPU, 1, cell=CELL)]
    async with two_nodes.open(cellPlacement="PodGroup") as launcher:
        for member in members:
            await launcher.apply(member)
        await observed(launcher, ready(2))
    async with two_nodes.open(cellPlacement="PodGroup") as launcher:

        async def keep() -> None:
            async for _ in launcher.watch():
                for member in members:
                    await launcher.apply(member)

        applying = asyncio.create_task(keep())
        before = await two_nodes.client.get(POD_GROUPS, CELL.name)
        await two_nodes.client.merge_patch(POD_GROUPS, CELL.name, {"metadata": {"finalizers": None}})
        await two_nodes.client.delete(POD_GROUPS, CELL.name)

        async def is_restored() -> bool:
            found = (await two_nodes.client.list(POD_GROUPS)).items
            return [each["metadata"]["uid"] for each in found] not in ([], [before["metadata"]["uid"]])

        await until(is_restored)
        [found] = (await two_nodes.client.list(POD_GROUPS)).items
        assert found["spec"] == before["spec"]
        applying.cancel()
        await asyncio.gather(applying, return_exceptions=True)


@pytest.mark.slow
async def test_a_pod_group_ends_with_the_last_group_of_its_cell(two_nodes: ClusterSite) -> None:
    async with two_nodes.open(cellPlacement="PodGroup") as launcher:
        members = [ExecutorGroup(ONE_GPU, 1, cell=CELL), ExecutorGroup(ALSO_ONE_GPU, 1, cell=CELL)]
        for _ in range(2):
            for member in members:
                await launcher.apply(member)
            await observed(launcher, ready(2))
            await launcher.delete(members[0].key)
            await observed(launcher, ready(1))
            await two_nodes.client.get(POD_GROUPS, CELL.name)
            await launcher.delete(members[1].key)

            async def is_deleted() -> bool:
                return not (await two_nodes.client.list(POD_GROUPS)).items

            await until(is_deleted)
