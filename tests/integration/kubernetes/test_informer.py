"""Informers of a real API server."""

from __future__ import annotations

import asyncio

import pytest

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import CONFIG_MAPS, JsonObject, ResourceType
from tests.kubernetes.api_server_proxy import ApiServerProxy
from tests.loop_clock import LoopClock
from tests.waiting import until


def config_map(name: str, **data: str) -> JsonObject:
    metadata = {"name": name, "labels": {"first": name[0]}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_an_informer_follows_the_objects(kube_client: KubeClient) -> None:
    await kube_client.create(CONFIG_MAPS, config_map("a"))
    async with Informer(kube_client, CONFIG_MAPS).running() as informer:
        assert list(informer.objects) == ["a"]
        changed = informer.next_change()
        created = await kube_client.create(CONFIG_MAPS, config_map("b"))
        await changed.wait()
        del created["metadata"]["managedFields"]
        assert informer.objects["b"] == created
        await kube_client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "1"}})
        await until(lambda: informer.objects["a"].get("data") == {"x": "1"})
        await kube_client.delete(CONFIG_MAPS, "a")
        await until(lambda: list(informer.objects) == ["b"])


async def test_an_informer_tracks_changes(kube_client: KubeClient) -> None:
    for name in ("a", "b", "c"):
        await kube_client.create(CONFIG_MAPS, config_map(name))
    async with Informer(kube_client, CONFIG_MAPS).running() as informer:
        changed = informer.track_changes()
        assert changed == {"a", "b", "c"}
        changed.clear()
        await kube_client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "1"}})
        await kube_client.delete(CONFIG_MAPS, "b")
        await until(lambda: "b" not in informer.objects)
        assert changed == {"a", "b"}
        assert informer.track_changes() == set(informer.objects)


async def test_listed_and_watched_objects_have_the_same_form(kube_client: KubeClient) -> None:
    async with Informer(kube_client, CONFIG_MAPS).running() as watching:
        await kube_client.create(CONFIG_MAPS, config_map("a"))
        await until(lambda: "a" in watching.objects)
        async with Informer(kube_client, CONFIG_MAPS).running() as listing:
            assert listing.objects == watching.objects


async def test_selectors_limit_the_objects(kube_client: KubeClient) -> None:
    for name in ("a", "a2", "b"):
        await kube_client.create(CONFIG_MAPS, config_map(name))
    async with (
        Informer(kube_client, CONFIG_MAPS, label_selector="first=a").running() as labeled,
        Informer(kube_client, CONFIG_MAPS, field_selector="metadata.name=b").running() as named,
    ):
        assert (sorted(labeled.objects), sorted(named.objects)) == (["a", "a2"], ["b"])
        await kube_client.merge_patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"first": "other"}}})
        await until(lambda: sorted(labeled.objects) == ["a2"])


async def test_an_informer_keeps_its_objects_while_the_api_server_is_away(
    kube_client: KubeClient, proxied_client: KubeClient, api_server_proxy: ApiServerProxy
) -> None:
    await kube_client.create(CONFIG_MAPS, config_map("a"))
    async with Informer(proxied_client, CONFIG_MAPS).running() as informer:
        await until(lambda: not informer.error)
        await api_server_proxy.stop()
        await until(lambda: "cannot reach the Kubernetes API server" in informer.error)
        assert list(informer.objects) == ["a"]
        await kube_client.create(CONFIG_MAPS, config_map("b"))
        await api_server_proxy.resume()
        await until(lambda: sorted(informer.objects) == ["a", "b"])
        await until(lambda: not informer.error)


async def test_an_informer_starts_while_the_api_server_is_away(
    proxied_client: KubeClient, api_server_proxy: ApiServerProxy
) -> None:
    await api_server_proxy.stop()
    informer = Informer(proxied_client, CONFIG_MAPS)
    task = asyncio.create_task(informer.run())
    await until(lambda: informer.error != "")
    assert not informer.synced.is_set()
    await api_server_proxy.resume()
    await informer.synced.wait()
    task.cancel()


async def test_an_informer_notices_a_silent_connection(
    kube_client: KubeClient,
    proxied_client: KubeClient,
    api_server_proxy: ApiServerProxy,
    clock: LoopClock,
) -> None:
    async with Informer(proxied_client, CONFIG_MAPS).running() as informer:
        await until(lambda: not informer.error)
        api_server_proxy.silence()
        await kube_client.create(CONFIG_MAPS, config_map("a"))
        await clock.advance_until(lambda: informer.error != "", step=1)


async def test_a_quiet_informer_continues_without_a_list(
    kube_client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: list[str] = []
    start_watch = kube_client.watch

    def record(type: ResourceType, version: str, **options: object) -> object:
        versions.append(version)
        return start_watch(type, version, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kube_client, "watch", record)
    async with Informer(kube_client, CONFIG_MAPS, watch_seconds=1).running() as informer:
        monkeypatch.setattr(kube_client, "list", None)  # a list would fail
        await until(lambda: len(versions) == 3)
        await kube_client.create(CONFIG_MAPS, config_map("a"))
        await until(lambda: list(informer.objects) == ["a"])


async def test_a_missing_type_is_an_error_until_it_is_installed(kube_client: KubeClient) -> None:
    informer = Informer(kube_client, ResourceType("example.com", "v1", "things", "Thing"))
    task = asyncio.create_task(informer.run())
    await until(lambda: "not found" in informer.error)
    task.cancel()
