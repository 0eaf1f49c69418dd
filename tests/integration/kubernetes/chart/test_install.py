"""The API server accepts the chart with all kinds of values, and has no warnings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from scripts.cluster.programs import ROOT, program
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.helm import CHART, HelmError, HelmRelease, Manifests, render

SHARED_MEMORY = "executors.sharedMemory.type=persistentVolumeClaim"
OPTIONS: dict[str, list[str | Path]] = {
    "defaults": [],
    "gpu": ["--values", CHART / "values-gpu.yaml"],
    "tls": ["--set", "internalTls.enabled=true"],
    "ingress": ["--set", "gateway.ingress.enabled=true,gateway.ingress.tlsSecretName=certificate"],
    "autoscaling": ["--set", "gateway.autoscaling.enabled=true"],
    "shared memory": ["--set", SHARED_MEMORY],
    "host path": ["--set", "executors.sharedMemory.type=hostPath"],
    "dashboard": ["--set", "monitoring.dashboard.enabled=true"],
    "models only": ["--set", "modelsOnly.enabled=true"],
    "load balancer": ["--set", "gateway.service.type=LoadBalancer,gateway.service.port=8000"],
    "existing secrets": ["--set", "access.existingSecret=a,instanceSecret.existingSecret=b"],
    "egress": ["--set", "networkPolicies.egress.enabled=true"],
    "limits": ["--set", "limits.in-flight=4096,limits.queue=64"],
    "one replica": ["--set", "gateway.replicas=1,controller.replicas=1,networkPolicies.enabled=false"],
    "another name": ["--set", "fullnameOverride=serving"],
}


@pytest.fixture
def restricted_namespace(api_server: ApiServer) -> str:
    """A namespace that also warns of pod templates, which it would not enforce."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return api_server.create_namespace(**labels)


FAST = {"defaults", "gpu"}
"""The options in `make test`. Each of the others changes a few objects."""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=[] if name in FAST else [pytest.mark.slow])
        for name, options in OPTIONS.items()
    ],
)
def test_the_api_server_accepts_the_chart_without_a_warning(
    api_server: ApiServer, restricted_namespace: str, options: list[str | Path]
) -> None:
    manifests = render(*options, namespace=restricted_namespace)

    command = [str(program("kubectl")), f"--kubeconfig={api_server.files.kubeconfig}", "apply", "--server-side"]
    command += ["--dry-run=server", "--validate=strict", "-f", "-"]
    result = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == len(list(Manifests(manifests)))


def test_a_release_is_removed_without_a_trace(api_server: ApiServer, kube_namespace: str, release: HelmRelease) -> None:
    kinds = "deployments,services,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb,pvc"

    def objects() -> set[str]:
        return set(api_server.kubectl("get", kinds, "-n", kube_namespace, "-o", "name").split())

    before = objects()
    release.install("--set", SHARED_MEMORY)
    assert "deployment.apps/cornserve-gateway" in objects()
    release.uninstall()

    pending = "persistentvolumeclaim/cornserve-shared-memory"  # a controller, which does not run here, releases it
    assert objects() - {pending} == before
    volumes = api_server.request("GET", "/api/v1/persistentvolumes")["items"]
    own = [volume["metadata"] for volume in volumes if volume["metadata"]["name"].startswith(kube_namespace)]
    assert all("deletionTimestamp" in metadata for metadata in own)


def test_the_plain_manifests_are_accepted(api_server: ApiServer) -> None:
    files = sorted((ROOT / "kubernetes" / "manifests").glob("*.yaml"))
    for item in (item for file in files for item in Manifests(file.read_text()) if item["kind"] == "Namespace"):
        api_server.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(item))

    for file in files:
        api_server.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file)


def test_a_namespace_holds_one_release(release: HelmRelease, kubeconfig: Path, kube_namespace: str) -> None:
    release.install()

    with pytest.raises(HelmError, match=f"namespace {kube_namespace} already contains the release cornserve"):
        HelmRelease("other", kubeconfig, kube_namespace).install()
