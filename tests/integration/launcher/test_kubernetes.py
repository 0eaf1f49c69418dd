"""The launcher of Kubernetes on a real control plane, with a node whose pods are processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import (
    ExecutorGroup,
    GroupKey,
    GroupRefusedError,
    Launcher,
    PodSettings,
)
from cornserve.control.launcher.kubernetes.logs import ClusterReplicaLogs
from cornserve.kubernetes.errors import KubeNotFoundError
from cornserve.kubernetes.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    ResourceType,
)
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, EXECUTOR_LABEL, INSTANCE_LABEL
from cornserve.v1 import executor_pb2 as pb
from tests.integration.launcher.cluster_site import ClusterSite, cluster_site
from tests.integration.launcher.conformance import (
    BROKEN,
    ECHO,
    LauncherConformance,
    events,
    failed,
    ids,
    observed,
    ready,
    started,
    watching,
)
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fake_kubelet import NodeFiles
from tests.waiting import until

ONE_GPU = ECHO.model_copy(update={"gpus": 1, "config": {"prefix": "one: "}})


async def objects(site: ClusterSite) -> list[ResourceType]:
    """Returns the types of the objects of the echo group that exist."""
    found = []
    for type in (DEPLOYMENTS, SERVICES, POD_DISRUPTION_BUDGETS):
        try:
            await site.client.get(type, ECHO.key)
            found.append(type)
        except KubeNotFoundError:
            pass
    return found


async def add_evicted_pod(site: ClusterSite) -> None:
    """Adds a pod to the echo group that its node has evicted."""
    labels = {INSTANCE_LABEL: site.settings.instance, COMPONENT_LABEL: "executor", EXECUTOR_LABEL: ECHO.key}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "schedulerName": "none",
        "containers": [{"name": "executor", "image": "none", "securityContext": security}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    await site.client.create(PODS, {"metadata": {"name": "evicted", "labels": labels}, "spec": spec})
    status = {"phase": "Failed", "reason": "Evicted"}
    await site.client.merge_patch(PODS, "evicted", {"status": status}, subresource="status")


def written(deployment: dict[str, Any]) -> Any:
    """Returns when each manager has written which fields."""
    managers = deployment["metadata"]["managedFields"]
    return [(each["time"], each["fieldsV1"]) for each in managers if each.get("subresource") != "status"]


@pytest.fixture
async def site(api_server: ApiServer, kubeconfig: Path, node_files: NodeFiles) -> AsyncIterator[ClusterSite]:
    async with cluster_site(api_server, kubeconfig, node_files) as site:
        yield site


@pytest.fixture
async def launcher(site: ClusterSite) -> AsyncIterator[Launcher]:
    async with site.open() as launcher:
        yield launcher


@pytest.mark.slow
class TestConformance(LauncherConformance):
    async def test_consecutive_failures_are_counted_and_their_logs_kept(self, launcher: Launcher) -> None:
        """Kubernetes keeps the logs of the last two runs only."""
        await launcher.apply(ExecutorGroup(BROKEN, 1))
        [second] = await observed(launcher, lambda replicas: failed(replicas) and replicas[0].failures == 2)
        [third] = await observed(launcher, lambda replicas: failed(replicas) and replicas[0].failures == 3)
        assert third.id != second.id
        assert "there are no words" in "\n".join(await launcher.logs(second.id, 100))

    async def test_a_group_that_is_applied_while_it_drains_gets_new_replicas(self, launcher: Launcher) -> None:
        """A pod that Kubernetes has not begun to end yet stays."""
        before = await started(launcher)
        await launcher.delete(before[0].group)
        await observed(launcher, lambda replicas: not replicas or replicas[0].state is ReplicaState.DRAINING)
        assert not ids(await started(launcher)) & ids(before)


class TestObjects:
    async def test_a_group_that_is_up_to_date_is_not_written_again(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            await started(launcher)
            before = await site.client.get(DEPLOYMENTS, ECHO.key)
            for _ in range(3):
                await launcher.apply(ExecutorGroup(ECHO, 1))
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(ECHO, 1))
            after = await site.client.get(DEPLOYMENTS, ECHO.key)
        assert written(after) == written(before)

    async def test_a_deleted_group_leaves_nothing(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            await started(launcher)
            assert set(await objects(site)) == {DEPLOYMENTS, SERVICES, POD_DISRUPTION_BUDGETS}
            await launcher.delete(GroupKey(ECHO.key))

            async def has_no_objects() -> bool:
                return await objects(site) == []

            await until(has_no_objects)

    async def test_an_evicted_pod_does_not_keep_the_objects_of_a_deleted_group(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            await started(launcher)
            await add_evicted_pod(site)
            await launcher.delete(GroupKey(ECHO.key))

            async def has_no_objects() -> bool:
                return await objects(site) == []

            await until(has_no_objects)

    @pytest.mark.slow
    async def test_the_service_stays_while_a_pod_drains(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher)
            invocation = events(replica, "first second", seconds=1)
            await anext(invocation)
            await launcher.delete(replica.group)
            await observed(launcher, lambda replicas: replicas[0].state is ReplicaState.DRAINING)
            assert SERVICES in await objects(site)
            assert [event async for event in invocation][-1].end.code == pb.CODE_OK

    async def test_a_deployment_that_someone_changes_is_restored(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            await started(launcher)
            change = {"spec": {"minReadySeconds": 1, "template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
            changed = await site.client.merge_patch(DEPLOYMENTS, ECHO.key, change)

            async def is_restored() -> bool:
                await launcher.apply(ExecutorGroup(ECHO, 1))
                found = await site.client.get(DEPLOYMENTS, ECHO.key)
                grace = found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
                return bool(found["metadata"]["generation"] > changed["metadata"]["generation"] and grace > 1)

            await until(is_restored)

    @pytest.mark.slow
    async def test_a_deployment_that_someone_deletes_is_created_again(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            before = await started(launcher)
            await site.client.delete(DEPLOYMENTS, ECHO.key)
            await observed(launcher, lambda replicas: ReplicaState.DRAINING in [each.state for each in replicas])

            async def is_replaced() -> bool:
                await launcher.apply(ExecutorGroup(ECHO, 1))
                replicas = launcher.replicas()
                return ready(1)(replicas) and not ids(before) & ids(replicas)

            await until(is_replaced)

    async def test_an_image_is_upgraded_without_a_gap(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            before = await started(launcher)
        device = {**site.settings.cpu.model_dump(by_alias=True), "image": "localhost/cornserve-echo:new"}
        async with site.open(cpu=device) as launcher, watching(launcher) as watch:
            await launcher.apply(ExecutorGroup(ECHO, 1))
            async for replicas in watch:
                states = [replica.state for replica in replicas]
                assert ReplicaState.READY in states
                if states == [ReplicaState.READY] and not ids(replicas) & ids(before):
                    break

    async def test_the_words_of_the_api_server_refuse_a_pod_template(self, launcher: Launcher) -> None:
        containers: list[JsonValue] = [{"name": "executor", "resources": {"limits": {"cpu": "much"}}}]
        group = ExecutorGroup(ECHO, 1, PodSettings(template={"spec": {"containers": containers}}))
        with pytest.raises(GroupRefusedError, match="quantities must match the regular expression"):
            await launcher.apply(group)
        unknown = ExecutorGroup(ECHO, 1, PodSettings(template={"spec": {"colour": "red"}}))
        with pytest.raises(GroupRefusedError, match="colour"):
            await launcher.apply(unknown)
        assert launcher.replicas() == []

    async def test_pods_that_the_namespace_refuses_are_reported(self, launcher: Launcher) -> None:
        containers: list[JsonValue] = [{"name": "executor", "securityContext": {"allowPrivilegeEscalation": True}}]
        group = ExecutorGroup(ECHO, 1, PodSettings(template={"spec": {"containers": containers}}))
        await launcher.apply(group)
        [replica] = await observed(launcher, lambda replicas: replicas[0].reason == "FailedCreate")
        assert "violates PodSecurity" in replica.message

    async def test_a_claim_that_does_not_exist_is_reported(self, launcher: Launcher) -> None:
        volumes: list[JsonValue] = [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]
        await launcher.apply(ExecutorGroup(ECHO, 1, PodSettings(template={"spec": {"volumes": volumes}})))
        [replica] = await observed(launcher, lambda replicas: replicas[0].reason == "VolumeUnavailable")
        assert 'persistentvolumeclaim "models" not found' in replica.message

    async def test_insufficient_capacity_is_reported_with_numbers(self, launcher: Launcher) -> None:
        await launcher.apply(ExecutorGroup(ECHO.model_copy(update={"gpus": 9}), 1))
        [replica] = await observed(launcher, lambda replicas: replicas[0].reason == "InsufficientCapacity")
        assert "Insufficient nvidia.com/gpu" in replica.message
        assert replica.state is ReplicaState.STARTING

    @pytest.mark.slow
    async def test_only_logs_of_executors_are_read(self, site: ClusterSite) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher)
            stranger = ClusterReplicaLogs(site.client, "another-installation")
            assert await stranger(replica.id, 10) == []


class TestGpuTypes:
    @pytest.mark.slow
    async def test_replicas_run_on_nodes_with_gpus_of_their_type(self, two_nodes: ClusterSite) -> None:
        name = f"node-2-{two_nodes.client.namespace}"
        types = {"second": {"nodeSelector": {"kubernetes.io/hostname": name}}}
        group = ExecutorGroup(ONE_GPU, 2, PodSettings(gpu_type="second"))
        async with two_nodes.open(gpuTypes=types) as launcher:
            await launcher.apply(group)
            replicas = await observed(launcher, ready(2))
            pods = [await two_nodes.client.get(PODS, replica.id) for replica in replicas]
            assert [pod["spec"]["nodeName"] for pod in pods] == [name] * 2
            await launcher.apply(replace(group, replicas=3))
            await observed(launcher, lambda replicas: any("1 Insufficient" in each.message for each in replicas))

    async def test_an_unknown_type_is_refused_before_anything_changes(self, launcher: Launcher) -> None:
        with pytest.raises(GroupRefusedError, match=r"gpuType 'h100' of .* is unknown \(known: none\)"):
            await launcher.apply(ExecutorGroup(ONE_GPU, 1, PodSettings(gpu_type="h100")))
        assert launcher.replicas() == []
