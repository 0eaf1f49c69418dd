"""Fields of a spec that other programs write: `kubectl`, Argo CD, autoscalers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.app.record import AppStatus
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import APPS, FieldConflictError, Store
from cornserve.control.store.kubernetes import SPEC_MANAGER, KubernetesStore
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.record_resources import APP_RECORDS, PLAIN_CODECS


@pytest.fixture
def store(kube_client: KubeClient, record_crds: None) -> Store:
    return KubernetesStore(kube_client, PLAIN_CODECS)


@pytest.fixture
async def argo(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="argocd-controller") as client:
        yield client


def manifest(**spec: object) -> JsonObject:
    return {"apiVersion": APP_RECORDS.api_version, "kind": "AppRecord", "metadata": {"name": "a"}, "spec": spec}


async def managed_fields(client: KubeClient, manager: str) -> set[str]:
    metadata = (await client.get(APP_RECORDS, "a"))["metadata"]
    entries = (each["fieldsV1"].get("f:spec", {}) for each in metadata["managedFields"] if each["manager"] == manager)
    return {field for entry in entries for field in entry}


async def test_a_field_of_another_manager_is_not_changed(store: Store, argo: KubeClient) -> None:
    await argo.apply(APP_RECORDS, manifest(model={"id": "m"}, replicas=2))
    record = await store.get(APPS, "a")
    with pytest.raises(FieldConflictError, match=r"'a' .* spec.replicas \(argocd-controller\): change them there"):
        await store.update_spec(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=3), record.version)
    assert await store.get(APPS, "a") == record


async def test_a_field_of_another_manager_is_not_removed(store: Store, argo: KubeClient) -> None:
    await argo.apply(APP_RECORDS, manifest(model={"id": "m", "shares": {"a": 1, "b": 2}}))
    record = await store.get(APPS, "a")
    for shares in ({"a": 1}, None):
        with pytest.raises(FieldConflictError, match=r"spec.model \(argocd-controller\)"):
            await store.update_spec(APPS, "a", AppSpec(model=AppModel(id="m", shares=shares)), record.version)
    assert await store.get(APPS, "a") == record


async def test_a_write_manages_only_the_fields_that_it_changes(store: Store, argo: KubeClient) -> None:
    await argo.apply(APP_RECORDS, manifest(model={"id": "m"}))
    record = await store.get(APPS, "a")
    for replicas in (3, 4):
        record = await store.update_spec(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=replicas), record.version)
    assert record.spec == AppSpec(model=AppModel(id="m"), replicas=4)
    assert await managed_fields(argo, "cornserve") == {"f:replicas"}

    # A manifest that is applied again and again does not change anything, or meets a conflict.
    applied = await argo.apply(APP_RECORDS, manifest(model={"id": "m"}))
    assert int(applied["metadata"]["resourceVersion"]) == record.version
    await argo.apply(APP_RECORDS, manifest(model={"id": "other"}))
    assert (await store.get(APPS, "a")).spec == AppSpec(model=AppModel(id="other"), replicas=4)


async def test_a_controller_changes_fields_that_gateways_manage(store: Store, kubeconfig: Path) -> None:
    record = await store.create(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=2))
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve-controller") as client:
        adapting = KubernetesStore(client.with_field_manager(SPEC_MANAGER), PLAIN_CODECS)
        await adapting.update_spec(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=3), record.version)
    record = await store.get(APPS, "a")
    assert (
        await store.update_spec(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=4), record.version)
    ).spec.replicas == 4


async def test_the_status_of_an_app_of_another_manager_can_be_written(store: Store, argo: KubeClient) -> None:
    await argo.apply(APP_RECORDS, manifest(model={"id": "m"}))
    record = await store.get(APPS, "a")
    record = await store.update_status(APPS, "a", AppStatus(message="hello"), record.version)
    assert (record.generation, record.status.message) == (1, "hello")
    applied = await argo.apply(APP_RECORDS, manifest(model={"id": "m"}))
    assert int(applied["metadata"]["resourceVersion"]) == record.version


@pytest.mark.parametrize(
    "command",
    [
        ["scale", "--replicas=5"],
        ["patch", "--type=merge", '-p={"spec": {"replicas": 5}}'],
    ],
)
async def test_the_last_command_wins(
    store: Store, api_server: ApiServer, kube_namespace: str, command: list[str]
) -> None:
    created = await store.create(APPS, "a", AppSpec(model=AppModel(id="m")))
    verb, *options = command
    api_server.kubectl(verb, f"{APP_RECORDS.qualified_name}/a", *options, "-n", kube_namespace)
    scaled = await store.get(APPS, "a")
    assert (scaled.spec.replicas, scaled.generation) == (5, created.generation + 1)
    record = await store.update_spec(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=2), scaled.version)
    assert record.spec.replicas == 2


async def test_the_replicas_of_an_autoscaler_are_not_changed(
    store: Store, api_server: ApiServer, kube_namespace: str
) -> None:
    await store.create(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=2))
    path = f"{APP_RECORDS.path(kube_namespace, 'a')}/scale"
    scale = api_server.request("GET", path)
    scale["spec"]["replicas"] = 6
    api_server.request("PUT", f"{path}?fieldManager=kube-controller-manager", scale)
    record = await store.get(APPS, "a")
    assert record.spec.replicas == 6
    with pytest.raises(FieldConflictError, match=r"spec.replicas \(kube-controller-manager\)"):
        await store.update_spec(APPS, "a", AppSpec(model=AppModel(id="m"), replicas=2), record.version)
    updated = await store.update_spec(APPS, "a", AppSpec(model=AppModel(id="other"), replicas=6), record.version)
    assert updated.spec == AppSpec(model=AppModel(id="other"), replicas=6)
