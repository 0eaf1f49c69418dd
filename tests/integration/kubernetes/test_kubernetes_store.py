"""The store of a Kubernetes namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cornserve.app.record import AppStatus
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import (
    APPS,
    AlreadyExistsError,
    ChangeType,
    ConflictError,
    ExpiredError,
    NotFoundError,
    RecordRejectedError,
    Store,
    StoreUnavailableError,
    UnreadableRecordError,
)
from cornserve.control.store.kubernetes import SHORT_WATCH_SECONDS, KubernetesStore
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import ResourceType
from tests.kubernetes.api_server_proxy import ApiServerProxy
from tests.kubernetes.record_resources import APP_RECORDS, PLAIN_CODECS, plain_codec
from tests.loop_clock import LoopClock
from tests.unit.store.conformance import ONE, TWO, Connect, StoreConformance, open_watch, read_changes, status_with
from tests.waiting import until

FINALIZER = "test.cornserve.ai/wait"


@pytest.fixture
def connect(kubeconfig: Path, record_crds: None) -> Connect:
    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store]:
        async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve") as client:
            yield KubernetesStore(client, PLAIN_CODECS)

    return open_store


@pytest.fixture
def store(kube_client: KubeClient, record_crds: None) -> Store:
    return KubernetesStore(kube_client, PLAIN_CODECS)


@pytest.fixture
def proxied_store(proxied_client: KubeClient, record_crds: None) -> Store:
    return KubernetesStore(proxied_client, PLAIN_CODECS)


class TestKubernetesStore(StoreConformance):
    pass


# Objects that are not valid records


async def test_an_unreadable_object_is_listed_as_such(store: Store, kube_client: KubeClient) -> None:
    await store.create(APPS, "a", ONE)
    start = (await store.list(APPS)).version
    await kube_client.merge_patch(APP_RECORDS, "a", {"spec": {"policies": {"routing": "Random"}}})
    other = await store.create(APPS, "b", ONE)

    listing = await store.list(APPS)
    assert listing.records == [other]
    assert [each.name for each in listing.unreadable] == ["a"]
    assert "not 'Random'" in listing.unreadable[0].reason
    with pytest.raises(UnreadableRecordError, match="'a' cannot be read"):
        await store.get(APPS, "a")
    with pytest.raises(UnreadableRecordError):
        await store.update_status(APPS, "a", AppStatus(), listing.version)
    async with open_watch(store, start) as watch:
        with pytest.raises(ExpiredError, match="cannot be read"):
            await anext(watch)
    await store.delete(APPS, "a")
    assert (await store.list(APPS)).unreadable == []


async def test_a_name_that_kubernetes_does_not_accept_is_rejected(store: Store) -> None:
    with pytest.raises(RecordRejectedError, match=r"'a_b': .*RFC 1123"):
        await store.create(APPS, "a_b", ONE)


async def test_a_deletion_that_waits_for_a_finalizer_is_a_deletion(store: Store, kube_client: KubeClient) -> None:
    record = await store.create(APPS, "a", ONE)
    await kube_client.merge_patch(APP_RECORDS, "a", {"metadata": {"finalizers": [FINALIZER]}})
    await store.delete(APPS, "a")

    assert (await store.list(APPS)).records == []
    for call in (store.get(APPS, "a"), store.update_spec(APPS, "a", TWO, record.version)):
        with pytest.raises(NotFoundError):
            await call
    with pytest.raises(AlreadyExistsError):
        await store.create(APPS, "a", ONE)
    await kube_client.merge_patch(APP_RECORDS, "a", {"metadata": {"finalizers": []}})
    await store.create(APPS, "b", ONE)
    async with open_watch(store, record.version) as watch:
        changes = await read_changes(watch, 3)
    assert [(change.type, change.record.name) for change in changes] == [
        (ChangeType.PUT, "a"),
        (ChangeType.DELETED, "a"),
        (ChangeType.PUT, "b"),
    ]


# The API server


async def test_a_status_is_written_without_a_read(
    store: Store, kube_client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: Any) -> Any:
        raise AssertionError("the object is known")

    created = await store.create(APPS, "a", ONE)
    monkeypatch.setattr(kube_client, "get", fail)
    written = await store.update_status(APPS, "a", status_with("after a write"), created.version)
    [listed] = (await store.list(APPS)).records
    assert listed == written
    listed = await store.update_status(APPS, "a", status_with("after a listing"), listed.version)
    async with open_watch(store, listed.version) as watch:
        await kube_client.merge_patch(APP_RECORDS, "a", {"spec": {"replicas": 3}})
        [change] = await read_changes(watch, 1)
    watched = await store.update_status(APPS, "a", status_with("after a change"), change.record.version)
    assert (watched.spec.replicas, watched.status) == (3, status_with("after a change"))
    latest = await store.update_status(APPS, "a", status_with("before a late change"), watched.version)
    async with open_watch(store, change.record.version) as watch:
        assert (await read_changes(watch, 1))[0].record.version == watched.version
    watched = await store.update_status(APPS, "a", status_with("after a late change"), latest.version)

    await kube_client.merge_patch(APP_RECORDS, "a", {"spec": {"replicas": 4}})
    with pytest.raises(ConflictError):
        await store.update_status(APPS, "a", status_with("outdated"), watched.version)


async def test_a_missing_crd_is_one_clear_error(kube_client: KubeClient) -> None:
    missing = ResourceType("example.com", "v1", "things", "Thing")
    store = KubernetesStore(kube_client, {APPS.name: plain_codec(APPS, missing)})
    for call in (store.list(APPS), store.create(APPS, "a", ONE), store.get(APPS, "a")):
        with pytest.raises(StoreUnavailableError, match=r"things.example.com/v1: install the chart cornserve-crds"):
            await call


async def test_a_missing_namespace_is_not_a_missing_record(kubeconfig: Path, record_crds: None) -> None:
    async with KubeClient.connect(kubeconfig=kubeconfig, namespace="missing", field_manager="cornserve") as client:
        with pytest.raises(StoreUnavailableError, match='namespaces "missing" not found'):
            await KubernetesStore(client, PLAIN_CODECS).create(APPS, "a", ONE)


async def test_a_spec_based_on_an_unknown_version_is_a_conflict(store: Store) -> None:
    await store.create(APPS, "a", ONE)
    with pytest.raises(ConflictError):
        await store.update_spec(APPS, "a", TWO, 0)


async def test_a_store_fails_while_the_api_server_is_away_and_then_works(
    proxied_store: Store, api_server_proxy: ApiServerProxy
) -> None:
    record = await proxied_store.create(APPS, "a", ONE)
    await api_server_proxy.stop()
    for call in (
        proxied_store.list(APPS),
        proxied_store.get(APPS, "a"),
        proxied_store.update_spec(APPS, "a", TWO, record.version),
        proxied_store.delete(APPS, "a"),
    ):
        with pytest.raises(StoreUnavailableError, match="cannot reach the Kubernetes API server"):
            await call
    await api_server_proxy.resume()
    assert await proxied_store.get(APPS, "a") == record


async def test_a_watch_survives_a_lost_connection(
    store: Store, proxied_store: Store, api_server_proxy: ApiServerProxy, clock: LoopClock
) -> None:
    start = (await proxied_store.list(APPS)).version
    async with open_watch(proxied_store, start) as watch:
        first = await store.create(APPS, "a", ONE)
        assert [change.record for change in await read_changes(watch, 1)] == [first]
        clock.advance(SHORT_WATCH_SECONDS)
        pending = asyncio.create_task(read_changes(watch, 1))
        await api_server_proxy.drop_connections()
        second = await store.create(APPS, "b", ONE)
        assert [change.record for change in await pending] == [second]


async def test_a_watch_fails_while_the_api_server_is_away(
    proxied_store: Store, api_server_proxy: ApiServerProxy
) -> None:
    async with open_watch(proxied_store, (await proxied_store.list(APPS)).version) as watch:
        pending = asyncio.create_task(read_changes(watch, 1))
        await api_server_proxy.stop()
        with pytest.raises(StoreUnavailableError, match="cannot reach"):
            await pending


async def test_a_watch_of_a_quiet_store_continues_when_its_time_ends(
    store: Store, kube_client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches = 0
    start_watch = kube_client.watch

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal watches
        watches += 1
        return start_watch(*arguments, **options | {"seconds": 1})

    monkeypatch.setattr(kube_client, "watch", count)
    async with open_watch(store, (await store.list(APPS)).version) as watch:
        pending = asyncio.create_task(read_changes(watch, 1))
        await until(lambda: watches == 3)
        record = await store.create(APPS, "a", AppSpec(model=AppModel(id="m")))
        assert [change.record for change in await pending] == [record]
