"""The objects of executor groups that someone deletes or changes are restored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from cornserve.control.launcher.base import AppOwner, ExecutorGroup, GroupKey, LauncherError
from cornserve.control.launcher.kubernetes import KubernetesLauncher
from cornserve.control.launcher.kubernetes.names import COMPONENT, FIELD_MANAGER
from cornserve.gateway.kubernetes_endpoints import EndpointSliceSource
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeNotFoundError
from cornserve.kubernetes.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    JsonObject,
    ResourceType,
)
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, EXECUTOR_LABEL, INSTANCE_LABEL
from cornserve.task.spec import ExecutorSpec
from tests.credentials import CREDENTIALS
from tests.integration.launcher.cluster_site import cluster_settings
from tests.kubernetes.api_server_proxy import ApiServerProxy
from tests.waiting import until

GROUP = ExecutorGroup(ExecutorSpec(executor="echo"), 1)
TYPES = (DEPLOYMENTS, SERVICES, POD_DISRUPTION_BUDGETS)


def kind(value: object) -> str | None:
    return value.kind if isinstance(value, ResourceType) else None


@asynccontextmanager
async def keeping(client: KubeClient) -> AsyncIterator[KubernetesLauncher]:
    """Applies the group after each change, as a controller does."""
    launcher = KubernetesLauncher(
        client.with_field_manager(FIELD_MANAGER), cluster_settings(client.namespace), lambda: CREDENTIALS
    )
    await launcher.start()

    async def keep() -> None:
        async for _ in launcher.watch():
            await launcher.prune({GROUP.key})
            await launcher.apply(GROUP)

    await launcher.apply(GROUP)
    applying = asyncio.create_task(keep())
    try:
        yield launcher
    finally:
        applying.cancel()
        await asyncio.gather(applying, return_exceptions=True)
        await launcher.close()


async def find(client: KubeClient, type: ResourceType) -> JsonObject | None:
    try:
        return await client.get(type, GROUP.key)
    except KubeNotFoundError:
        return None


def spec_of(found: JsonObject) -> JsonObject:
    """Returns the spec without what the API server has added to a Service."""
    return {name: value for name, value in found["spec"].items() if name != "clusterIPs"}


async def versions(client: KubeClient) -> list[str]:
    return [(await client.get(type, GROUP.key))["metadata"]["resourceVersion"] for type in TYPES]


@pytest.mark.parametrize("type", TYPES, ids=kind)
async def test_an_object_that_someone_deletes_is_created_again(kube_client: KubeClient, type: ResourceType) -> None:
    async with keeping(kube_client):
        before = await kube_client.get(type, GROUP.key)
        await kube_client.delete(type, GROUP.key)

        async def is_restored() -> bool:
            found = await find(kube_client, type)
            return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

        await until(is_restored)
        restored = await kube_client.get(type, GROUP.key)
        assert spec_of(restored) == spec_of(before)
        assert restored["metadata"]["labels"] == before["metadata"]["labels"]


def change_selector(service: JsonObject) -> None:
    service["spec"]["selector"]["color"] = "red"


def change_port(service: JsonObject) -> None:
    service["spec"]["ports"][0] |= {"port": 7000, "targetPort": 7000}


def add_port(service: JsonObject) -> None:
    service["spec"]["ports"].append({"name": "another", "port": 80, "protocol": "TCP"})


def redirect(service: JsonObject) -> None:
    service["spec"] = {"type": "ExternalName", "externalName": "example.com"}


def forbid_evictions(budget: JsonObject) -> None:
    budget["spec"]["maxUnavailable"] = 0


def replace_limit(budget: JsonObject) -> None:
    del budget["spec"]["maxUnavailable"]
    budget["spec"]["minAvailable"] = 1


def change_pods(budget: JsonObject) -> None:
    budget["spec"]["selector"] = {"matchLabels": {"color": "red"}}


@pytest.mark.parametrize(
    ("type", "change"),
    [
        (SERVICES, change_selector),
        (SERVICES, change_port),
        (SERVICES, add_port),
        (SERVICES, redirect),
        (POD_DISRUPTION_BUDGETS, forbid_evictions),
        (POD_DISRUPTION_BUDGETS, replace_limit),
        (POD_DISRUPTION_BUDGETS, change_pods),
    ],
    ids=lambda value: getattr(value, "__name__", None) or kind(value),
)
async def test_an_object_that_someone_changes_is_restored(
    kube_client: KubeClient, type: ResourceType, change: Callable[[JsonObject], None]
) -> None:
    async with keeping(kube_client):
        before = await kube_client.get(type, GROUP.key)
        changed = await kube_client.get(type, GROUP.key)
        change(changed)
        written = await kube_client.replace(type, changed)
        assert spec_of(written) != spec_of(before)

        async def is_restored() -> bool:
            return spec_of(await kube_client.get(type, GROUP.key)) == spec_of(before)

        await until(is_restored)


@pytest.mark.parametrize(
    ("type", "label", "value"),
    [
        *((type, "app.kubernetes.io/instance", None) for type in TYPES),
        *((type, EXECUTOR_LABEL, None) for type in TYPES),
        *((type, EXECUTOR_LABEL, "other") for type in (SERVICES, POD_DISRUPTION_BUDGETS)),
    ],
    ids=lambda value: kind(value) or str(value).rpartition("/")[2],
)
async def test_labels_that_someone_removes_or_changes_are_restored(
    kube_client: KubeClient, type: ResourceType, label: str, value: str | None
) -> None:
    async with keeping(kube_client):
        before = (await kube_client.get(type, GROUP.key))["metadata"]["labels"]
        await kube_client.merge_patch(type, GROUP.key, {"metadata": {"labels": {label: value}}})

        async def is_restored() -> bool:
            return bool((await kube_client.get(type, GROUP.key))["metadata"]["labels"] == before)

        await until(is_restored)


async def test_objects_without_the_label_of_a_group_belong_to_none(kube_client: KubeClient) -> None:
    settings = cluster_settings(kube_client.namespace)
    labels = {INSTANCE_LABEL: settings.instance, COMPONENT_LABEL: COMPONENT}
    metadata = {"name": "foreign", "labels": labels}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "containers": [{"name": "executor", "image": "none", "securityContext": security}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    await kube_client.create(PODS, {"metadata": metadata, "spec": pod})
    await kube_client.create(
        ENDPOINT_SLICES,
        {
            "metadata": metadata,
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
            "ports": [{"port": 9000}],
        },
    )
    async with keeping(kube_client) as launcher:
        assert {replica.group for replica in launcher.replicas()} == {GROUP.key}
    async with aclosing(EndpointSliceSource(kube_client, settings.instance).watch()) as endpoints:
        assert await anext(endpoints) == {}


async def test_objects_that_were_deleted_or_changed_without_a_launcher_are_restored_by_the_next_one(
    kube_client: KubeClient,
) -> None:
    async with keeping(kube_client):
        service = await kube_client.get(SERVICES, GROUP.key)
        deployment = await kube_client.get(DEPLOYMENTS, GROUP.key)
    await kube_client.delete(POD_DISRUPTION_BUDGETS, GROUP.key)
    await kube_client.merge_patch(SERVICES, GROUP.key, {"spec": {"selector": {"color": "red"}}})
    strategy = {"type": "Recreate", "rollingUpdate": None}
    await kube_client.merge_patch(DEPLOYMENTS, GROUP.key, {"spec": {"strategy": strategy}})
    async with keeping(kube_client):
        assert (await kube_client.get(DEPLOYMENTS, GROUP.key))["spec"] == deployment["spec"]
        assert await find(kube_client, POD_DISRUPTION_BUDGETS) is not None
        assert spec_of(await kube_client.get(SERVICES, GROUP.key)) == spec_of(service)


async def test_objects_that_are_as_they_should_be_are_not_written(kube_client: KubeClient) -> None:
    async with keeping(kube_client) as launcher:
        before = await versions(kube_client)
        for _ in range(3):
            await launcher.apply(GROUP)
        annotated = {"metadata": {"annotations": {"color": "red"}}}
        written = await kube_client.merge_patch(SERVICES, GROUP.key, annotated)
        await launcher.apply(GROUP)
    async with keeping(kube_client) as launcher:
        await launcher.apply(GROUP)
        expected = [before[0], written["metadata"]["resourceVersion"], before[2]]
        assert await versions(kube_client) == expected


async def test_objects_whose_deployment_was_deleted_without_a_launcher_are_removed(kube_client: KubeClient) -> None:
    other = ExecutorGroup(ExecutorSpec(executor="other"), 1)
    async with keeping(kube_client) as launcher:
        await launcher.apply(other)
    await kube_client.delete(DEPLOYMENTS, other.key)
    labels = {"app.kubernetes.io/instance": "test", "app.kubernetes.io/component": "executor"}
    own = {"metadata": {"name": "own", "labels": labels}, "spec": {"clusterIP": "None"}}
    await kube_client.create(SERVICES, own)  # a Service of a user
    async with keeping(kube_client) as launcher:
        await launcher.prune({GroupKey(GROUP.key)})
        await kube_client.get(SERVICES, "own")
        for type in (SERVICES, POD_DISRUPTION_BUDGETS):
            with pytest.raises(KubeNotFoundError):
                await kube_client.get(type, other.key)
        assert await find(kube_client, SERVICES) is not None


async def test_executors_that_may_belong_to_unreadable_apps_are_kept(kube_client: KubeClient) -> None:
    def group(name: str, *apps: str) -> ExecutorGroup:
        owners = tuple(AppOwner(app, f"uid-of-{app}") for app in apps)
        return ExecutorGroup(ExecutorSpec(executor=name), 1, owners=owners)

    kept = [group("a", "chat", "broken"), group("b", "broken"), group("c")]
    pruned = group("d", "chat")
    launcher = KubernetesLauncher(kube_client, cluster_settings(kube_client.namespace), lambda: CREDENTIALS)
    await launcher.start()
    for each in [*kept, pruned]:
        await launcher.apply(each)

    await launcher.prune(set(), {"broken"})

    deployments = (await kube_client.list(DEPLOYMENTS)).items
    replicas = {each["metadata"]["name"]: each["spec"]["replicas"] for each in deployments}
    assert replicas == {**{each.key: 1 for each in kept}, pruned.key: 0}
    await launcher.close()


async def test_an_error_of_the_api_server_names_the_executor(
    proxied_client: KubeClient, api_server_proxy: ApiServerProxy
) -> None:
    launcher = KubernetesLauncher(proxied_client, cluster_settings(proxied_client.namespace), lambda: CREDENTIALS)
    await launcher.start()
    await launcher.apply(GROUP)
    await api_server_proxy.stop()

    with pytest.raises(LauncherError, match=f"cannot apply the executor {GROUP.key}: cannot reach the Kubernetes API"):
        await launcher.apply(replace(GROUP, replicas=2))
    with pytest.raises(LauncherError, match=f"cannot end the executor {GROUP.key}: cannot reach the Kubernetes API"):
        await launcher.prune(set())
    await launcher.close()
