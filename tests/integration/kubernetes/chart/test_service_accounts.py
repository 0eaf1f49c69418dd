"""Gateway and controller do their work with the permissions of their ServiceAccounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from cornserve.control.launcher.base import ExecutorGroup
from cornserve.control.launcher.kubernetes.launcher import KubernetesLauncher
from cornserve.control.launcher.kubernetes.names import FIELD_MANAGER
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.lease_election import LeaseElection
from cornserve.kubernetes.resources import ENDPOINT_SLICES, PODS, JsonObject
from cornserve.task.spec import ExecutorSpec
from tests.credentials import CREDENTIALS
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.helm import CHART, HelmRelease, Manifests
from tests.waiting import until

KubeconfigOf = Callable[[str], Path]

SPECS = {"cpu": ExecutorSpec(executor="echo"), "gpu": ExecutorSpec(executor="echo", gpus=2)}


def settings(manifests: Manifests) -> ClusterSettings:
    text = manifests.get("ConfigMap", "cornserve-cluster-settings")["data"]["settings.yaml"]
    return ClusterSettings.model_validate(yaml.safe_load(text))


@asynccontextmanager
async def launching(kubeconfig: Path, manifests: Manifests) -> AsyncIterator[KubernetesLauncher]:
    """Runs a launcher as the controller does."""
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager=FIELD_MANAGER) as client:
        launcher = KubernetesLauncher(client, settings(manifests), lambda: CREDENTIALS)
        await launcher.start()
        try:
            yield launcher
        finally:
            await launcher.close()


def deployments(server: ApiServer, namespace: str) -> dict[str, JsonObject]:
    """Returns the Deployments of executors."""
    selector = "labelSelector=cornserve.ai/executor"
    listing = server.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments?{selector}")
    return {item["metadata"]["name"]: item for item in listing["items"]}


async def change_service(server: ApiServer, namespace: str, launcher: KubernetesLauncher, group: ExecutorGroup) -> None:
    """Changes the Service of a group, which the launcher then restores."""
    path = f"/api/v1/namespaces/{namespace}/services/{group.key}"
    service = server.request("GET", path)
    selector = service["spec"]["selector"]
    server.request("PUT", path, {**service, "spec": {**service["spec"], "selector": {"color": "red"}}})

    async def is_restored() -> bool:
        await launcher.apply(group)
        return bool(server.request("GET", path)["spec"]["selector"] == selector)

    await until(is_restored)


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.slow)])
async def test_a_controller_runs_executors_that_pod_security_admits(
    api_server: ApiServer,
    kube_namespace: str,
    release: HelmRelease,
    service_account_kubeconfig: KubeconfigOf,
    device: str,
) -> None:
    values: list[str | Path] = (
        ["--values", CHART / "values-gpu.yaml", "--set", "internalTls.enabled=true"] if device == "gpu" else []
    )
    manifests = release.install(*values)
    group = ExecutorGroup(SPECS[device], 1)

    async with launching(service_account_kubeconfig("cornserve-controller"), manifests) as launcher:
        await launcher.apply(group)
        template = deployments(api_server, kube_namespace)[group.key]["spec"]["template"]
        pod = {"metadata": {"name": "executor", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
        api_server.request("POST", f"/api/v1/namespaces/{kube_namespace}/pods?dryRun=All", pod)
        await change_service(api_server, kube_namespace, launcher, group)
        await launcher.delete(group.key)
        await until(lambda: deployments(api_server, kube_namespace)[group.key]["spec"]["replicas"] == 0)


async def test_a_controller_leads(release: HelmRelease, service_account_kubeconfig: KubeconfigOf) -> None:
    release.install()
    leading = asyncio.Event()

    async def lead() -> None:
        leading.set()
        await asyncio.Event().wait()

    account = service_account_kubeconfig("cornserve-controller")
    async with KubeClient.connect(kubeconfig=account, field_manager=FIELD_MANAGER) as client:
        election = LeaseElection(client, "cornserve-controller", "a-controller")
        running = asyncio.create_task(election.run(lead))
        await leading.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_gateway_follows_executors(release: HelmRelease, service_account_kubeconfig: KubeconfigOf) -> None:
    release.install()

    account = service_account_kubeconfig("cornserve-gateway")
    async with KubeClient.connect(kubeconfig=account, field_manager="test") as client:
        for kind in (ENDPOINT_SLICES, PODS):
            async with Informer(client, kind).running():
                pass
