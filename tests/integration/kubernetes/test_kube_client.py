"""Requests to a real API server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cornserve.kubernetes import pages
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import (
    KubeAlreadyExistsError,
    KubeConfigError,
    KubeConflictError,
    KubeForbiddenError,
    KubeGoneError,
    KubeInvalidError,
    KubeNotFoundError,
    KubeUnauthorizedError,
    KubeUnavailableError,
    KubeUnknownTypeError,
)
from cornserve.kubernetes.resources import CONFIG_MAPS, NODES, PODS, JsonObject, ResourceType
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.api_server_proxy import ApiServerProxy
from tests.loop_clock import LoopClock


def config_map(name: str, **data: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_an_object_is_created_read_changed_and_deleted(kube_client: KubeClient) -> None:
    created = await kube_client.create(CONFIG_MAPS, config_map("a", x="1"))
    assert await kube_client.get(CONFIG_MAPS, "a") == created
    created["data"]["y"] = "2"
    replaced = await kube_client.replace(CONFIG_MAPS, created)
    patched = await kube_client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": None}})
    assert (replaced["data"], patched["data"]) == ({"x": "1", "y": "2"}, {"y": "2"})
    await kube_client.delete(CONFIG_MAPS, "a", uid=created["metadata"]["uid"], propagation="Background")
    assert (await kube_client.list(CONFIG_MAPS)).items == []


async def test_apply_owns_its_fields(kube_client: KubeClient, kubeconfig: Path) -> None:
    await kube_client.apply(CONFIG_MAPS, config_map("a", x="1", y="1"))
    applied = await kube_client.apply(CONFIG_MAPS, config_map("a", x="2"))
    assert applied["data"] == {"x": "2"}
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="argocd") as other:
        with pytest.raises(KubeConflictError) as conflict:
            await other.apply(CONFIG_MAPS, config_map("a", x="3"))
        assert [(cause["reason"], cause["field"]) for cause in conflict.value.causes] == [
            ("FieldManagerConflict", ".data.x")
        ]
        assert 'conflict with "cornserve"' in conflict.value.message
        forced = await other.apply(CONFIG_MAPS, config_map("a", x="3"), force=True)
    assert forced["data"] == {"x": "3"}


async def test_a_dry_run_changes_nothing(kube_client: KubeClient) -> None:
    assert (await kube_client.apply(CONFIG_MAPS, config_map("a", x="1"), dry_run=True))["data"] == {"x": "1"}
    with pytest.raises(KubeNotFoundError):
        await kube_client.get(CONFIG_MAPS, "a")


async def test_errors_have_types(kube_client: KubeClient) -> None:
    await kube_client.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(KubeAlreadyExistsError, match='"a" already exists'):
        await kube_client.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(KubeNotFoundError, match='"b" not found'):
        await kube_client.get(CONFIG_MAPS, "b")
    with pytest.raises(KubeConflictError):
        await kube_client.delete(CONFIG_MAPS, "a", uid="other")
    old = await kube_client.get(CONFIG_MAPS, "a")
    await kube_client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "1"}})
    with pytest.raises(KubeConflictError):
        await kube_client.replace(CONFIG_MAPS, old)
    with pytest.raises(KubeInvalidError, match="RFC 1123"):
        await kube_client.create(CONFIG_MAPS, config_map("A_B"))
    with pytest.raises(KubeNotFoundError, match='pods "a" not found'):
        await kube_client.pod_log("a", tail_lines=1)


@pytest.mark.parametrize("write", ["create", "apply"])
async def test_unknown_fields_are_refused(kube_client: KubeClient, write: str) -> None:
    with pytest.raises(KubeInvalidError, match="datas"):
        await getattr(kube_client, write)(CONFIG_MAPS, config_map("a") | {"datas": {}})


async def test_a_missing_type_differs_from_a_missing_object(kube_client: KubeClient) -> None:
    missing = ResourceType("example.com", "v1", "things", "Thing")
    for call in (kube_client.get(missing, "a"), kube_client.list(missing)):
        with pytest.raises(KubeUnknownTypeError):
            await call


async def test_missing_permissions_and_invalid_credentials(
    api_server: ApiServer, kube_namespace: str, service_account_kubeconfig: Callable[[str], Path], tmp_path: Path
) -> None:
    async with KubeClient.connect(kubeconfig=service_account_kubeconfig("default"), field_manager="a") as client:
        with pytest.raises(KubeForbiddenError, match="cannot list resource"):
            await client.list(CONFIG_MAPS)
    api_server.files.write_kubeconfig(tmp_path / "wrong", "wrong", kube_namespace)
    async with KubeClient.connect(kubeconfig=tmp_path / "wrong", field_manager="a") as client:
        with pytest.raises(KubeUnauthorizedError):
            await client.list(CONFIG_MAPS)


async def test_credentials_are_read_again_when_they_are_refused(
    api_server: ApiServer, kube_namespace: str, kubeconfig: Path
) -> None:
    files = api_server.files
    files.write_kubeconfig(kubeconfig, "expired", kube_namespace)
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="a") as client:
        files.write_kubeconfig(kubeconfig, files.admin_token, kube_namespace)
        assert (await client.list(PODS)).items == []


async def test_a_pod_uses_its_service_account_and_reads_a_rotated_token(
    api_server: ApiServer, kube_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = api_server.files
    token = tmp_path / "token"
    token.write_text("expired")
    (tmp_path / "namespace").write_text(kube_namespace)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", files.address)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(files.port))
    monkeypatch.setattr("cornserve.kubernetes.configuration.SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_CERT_FILENAME", str(files.ca_file))
    async with KubeClient.connect(field_manager="a") as client:
        assert (client.namespace, client.host) == (kube_namespace, api_server.url)
        with pytest.raises(KubeUnauthorizedError):
            await client.list(PODS)
        token.write_text(files.admin_token)
        assert (await client.list(PODS)).items == []


async def test_credentials_that_cannot_be_read_again_are_an_error_of_the_request(
    api_server: ApiServer, kube_namespace: str, kubeconfig: Path
) -> None:
    api_server.files.write_kubeconfig(kubeconfig, "expired", kube_namespace)
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="a") as client:
        await asyncio.to_thread(kubeconfig.unlink)
        with pytest.raises(KubeUnauthorizedError):
            await client.list(PODS)


def test_the_import_of_the_client_is_fast() -> None:
    modules = "cornserve.kubernetes.client, cornserve.kubernetes.informer, cornserve.kubernetes.lease_election"
    program = f"import sys, {modules}; print([name for name in ('aiohttp', 'kubernetes') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"missing does not exist: set KUBECONFIG"),
        ("[", "is not valid"),
        ("{}", "is not valid|Expected key"),
        ('{"clusters": [], "contexts": [], "users": [], "current-context": "a"}', "Expected object with name a"),
    ],
)
async def test_an_invalid_kubeconfig_is_one_clear_error(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / ("missing" if content is None else "kubeconfig")
    if content is not None:
        file.write_text(content)
    with pytest.raises(KubeConfigError, match=message):
        async with KubeClient.connect(kubeconfig=file, field_manager="a"):
            pass


async def test_the_context_selects_namespace_and_server(
    kubeconfig: Path, kube_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{kubeconfig}.missing:{kubeconfig}")
    async with KubeClient.connect(context="cornserve-test", field_manager="a") as client:
        assert client.namespace == kube_namespace
        assert client.host.startswith("https://127.0.0.1:")
        assert (await client.server_version()).startswith("v1.")
        assert {node["kind"] for node in (await client.list(NODES)).items} <= {"Node"}
    async with KubeClient.connect(namespace="other", field_manager="a") as client:
        assert client.namespace == "other"
    with pytest.raises(KubeConfigError, match="wrong"):
        async with KubeClient.connect(context="wrong", field_manager="a"):
            pass


async def test_a_large_list_is_read_in_pages(kube_client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_OBJECTS", 2)
    for name in "abcde":
        await kube_client.create(CONFIG_MAPS, config_map(name) | {"metadata": {"name": name, "labels": {"n": name}}})
    listing = await kube_client.list(CONFIG_MAPS)
    assert [each["metadata"]["name"] for each in listing.items] == list("abcde")
    assert listing.items[0] == await kube_client.get(CONFIG_MAPS, "a")
    selected = await kube_client.list(CONFIG_MAPS, label_selector="n in (b,c)")
    assert [each["metadata"]["name"] for each in selected.items] == ["b", "c"]


async def test_a_list_reads_the_objects_at_a_version(kube_client: KubeClient) -> None:
    first = await kube_client.create(CONFIG_MAPS, config_map("a", x="1"))
    await kube_client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "2"}})
    listing = await kube_client.list(
        CONFIG_MAPS,
        field_selector="metadata.name=a",
        resource_version=first["metadata"]["resourceVersion"],
        exact=True,
    )
    assert listing.items == [first]


async def test_a_list_whose_pages_took_too_long_is_repeated_in_one_page() -> None:
    requests: list[pages.Parameters] = []

    async def read(parameters: pages.Parameters) -> JsonObject:
        requests.append(parameters)
        if "continue" in parameters:
            raise KubeGoneError(410, "Expired", "The provided continue parameter is too old")
        metadata = {"resourceVersion": "7"} | ({"continue": "token"} if "limit" in parameters else {})
        return {"items": [config_map("a")], "metadata": metadata}

    listing = await pages.read_pages(read, CONFIG_MAPS, {}, restart=True)
    assert (listing.resource_version, len(listing.items), len(requests)) == ("7", 1, 3)


async def test_a_watch_yields_changes_until_its_time_ends(kube_client: KubeClient) -> None:
    start = (await kube_client.list(CONFIG_MAPS)).resource_version
    await kube_client.create(CONFIG_MAPS, config_map("a"))
    await kube_client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "1"}})
    await kube_client.delete(CONFIG_MAPS, "a")
    async with kube_client.watch(CONFIG_MAPS, start, seconds=1) as events:
        types = [event.type async for event in events if event.type != "BOOKMARK"]
    assert types == ["ADDED", "MODIFIED", "DELETED"]


async def test_requests_fail_quickly_while_the_api_server_is_away(
    api_server_proxy: ApiServerProxy, proxied_client: KubeClient
) -> None:
    await proxied_client.list(CONFIG_MAPS)
    await api_server_proxy.stop()
    started = time.monotonic()
    with pytest.raises(KubeUnavailableError, match=f"cannot reach the Kubernetes API server {proxied_client.host}"):
        await proxied_client.list(CONFIG_MAPS)
    assert time.monotonic() - started < 5
    await api_server_proxy.resume()
    assert (await proxied_client.list(CONFIG_MAPS)).items == []


async def test_a_silent_connection_is_an_error(
    api_server_proxy: ApiServerProxy, proxied_client: KubeClient, clock: LoopClock
) -> None:
    version = (await proxied_client.list(CONFIG_MAPS)).resource_version
    async with proxied_client.watch(CONFIG_MAPS, version) as events:
        api_server_proxy.silence()
        with pytest.raises(KubeUnavailableError, match=r"(?i)timeout"):
            await clock.advance_during(anext(events), step=1)
    with pytest.raises(KubeUnavailableError, match=r"(?i)timeout"):
        await clock.advance_during(proxied_client.list(CONFIG_MAPS), step=1)
