"""Kubernetes deletes with a release what its controllers have created for it, and keeps the apps of users."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
import yaml

from cornserve.app.planning import WorkloadType
from cornserve.app.record import AppStatus, Phase
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.control.cluster_app_observer import ClusterAppObserver
from cornserve.control.installation_owner import installation_owners
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.control.profiling.cluster_job import ClusterProfiler
from cornserve.control.profiling.job import ProfilerProcessError, ProfilingJob
from cornserve.control.store.base import APPS, AppRecord
from cornserve.control.store.kubernetes import KubernetesStore
from cornserve.control.store.kubernetes_records import record_codecs
from cornserve.kubernetes import resources
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import CONFIG_MAPS, JOBS, ResourceType
from scripts.cluster.programs import ROOT
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.helm import HelmRelease, Manifests
from tests.kubernetes.stub_gateway import LABELS, StubGateway
from tests.kubernetes.stub_kubelet import stub_kubelet
from tests.waiting import until

JOB = ProfilingJob(
    app="chat",
    uid="11111111-2222-3333-4444-555555555555",
    spec=AppSpec(source=AppSource(inline="app = App()")),
    workload={"text": WorkloadType(components=["llm"], share=1.0)},
    seconds=30,
)
TEMPORARY = f"{JOB.prefix}1"


@pytest.fixture(scope="module")
def api_server(control_plane: ApiServer) -> ApiServer:
    """An API server with a garbage collector."""
    return control_plane


@pytest.fixture
def gateway(api_server: ApiServer, kube_namespace: str) -> Iterator[None]:
    with stub_kubelet(api_server.files.directory) as kubelet:
        gateway = StubGateway(api_server, kube_namespace, kubelet)
        gateway.install()
        gateway.add_pod("gateway-0", 1, labels=LABELS | {"app.kubernetes.io/instance": "cornserve"})
        yield


@pytest.fixture
async def controller(
    release: HelmRelease, service_account_kubeconfig: Callable[[str], Path]
) -> AsyncIterator[tuple[KubeClient, ClusterSettings]]:
    """The client and the settings of a controller of the release."""
    manifests: Manifests = release.install()
    text = manifests.get("ConfigMap", "cornserve-cluster-settings")["data"]["settings.yaml"]
    kubeconfig = service_account_kubeconfig("cornserve-controller")
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve-controller") as client:
        yield client, ClusterSettings.model_validate(yaml.safe_load(text))


async def names(client: KubeClient, type: ResourceType) -> set[str]:
    return {item["metadata"]["name"] for item in (await client.list(type)).items}


def documented_patch(namespace: str) -> list[str]:
    """Returns the arguments of the command that keeps the results, for the ConfigMap `kept`."""
    page = (ROOT / "docs/how-to/install-with-helm.md").read_text()
    [command] = [line for line in page.splitlines() if "patch configmap" in line]
    arguments = shlex.split(command.replace("cornserve-profiles", "kept").replace("team-a", namespace))
    return arguments[arguments.index("kubectl") + 1 :]


@pytest.mark.slow
async def test_measurements_end_with_the_release_and_apps_of_users_stay(
    api_server: ApiServer,
    kube_client: KubeClient,
    controller: tuple[KubeClient, ClusterSettings],
    release: HelmRelease,
    gateway: None,
) -> None:
    client, settings = controller
    store = KubernetesStore(kube_client, record_codecs())
    observer = ClusterAppObserver(client, "controller", settings)
    for name in ("chat", TEMPORARY):
        app: AppRecord = await store.create(APPS, name, AppSpec(model=AppModel(id="a/b")))
        starting = AppStatus(phase=Phase.STARTING, generation=1)
        await observer.on_status(await store.update_status(APPS, name, starting, app.version), app.status)
    owners = await installation_owners(client, settings)
    for name in ("cornserve-profiles", "kept"):
        metadata = {"name": name, "ownerReferences": owners}
        results = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"llm.json": "{}"}}
        await client.create(CONFIG_MAPS, results)
    api_server.kubectl(*documented_patch(client.namespace))

    async def measure() -> None:
        with suppress(ProfilerProcessError):  # The Job is deleted.
            async with aclosing(ClusterProfiler(client, settings)(JOB)) as messages:
                async for _ in messages:
                    pass

    async def has_started() -> bool:
        return any(name.startswith(f"cornserve-profiler-{JOB.run}-") for name in await names(kube_client, CONFIG_MAPS))

    measuring = asyncio.create_task(measure())
    await until(has_started)
    assert await names(kube_client, resources.APPS) == {"chat", TEMPORARY}

    release.uninstall()

    async def is_removed() -> bool:
        left = await names(kube_client, JOBS) | await names(kube_client, CONFIG_MAPS)
        return left - {"kube-root-ca.crt"} == {"kept"} and await names(kube_client, resources.APPS) == {"chat"}

    await until(is_removed, seconds=60)
    measuring.cancel()
    await asyncio.gather(measuring, return_exceptions=True)
