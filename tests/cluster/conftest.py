"""Fixtures of a Kubernetes cluster with nodes: the one of `make cluster`, or one of the user's kubeconfig file."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.cluster.machines import KUBECONFIG
from scripts.cluster.node_files import PAUSE_IMAGE
from scripts.cluster.programs import program


@dataclass(frozen=True)
class KubernetesCluster:
    """A cluster and the administrator's access to it."""

    kubeconfig: Path | None
    """None for the user's."""
    context: str

    @property
    def is_local(self) -> bool:
        """Whether it is the cluster of `make cluster`, whose processes and nodes a test can reach."""
        return self.kubeconfig is not None

    @property
    def busybox_image(self) -> str:
        return PAUSE_IMAGE if self.is_local else "docker.io/library/busybox:1.37"

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Runs kubectl and returns its output."""
        files = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        command = [str(program("kubectl")), *files, f"--context={self.context}", *arguments]
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    def get(self, *arguments: str) -> Any:
        """Returns the object or the list that `kubectl get` prints."""
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    def apply(self, namespace: str, *objects: dict[str, Any]) -> None:
        """Applies objects by server-side apply."""
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", f"--namespace={namespace}", "--filename=-", stdin=content)


@pytest.fixture(scope="session")
def cluster() -> KubernetesCluster:
    """The cluster of `make cluster`, or the context that `make test-cluster CONTEXT=name` gives."""
    context = os.environ.get("CORNSERVE_TEST_CONTEXT")
    if not context and not KUBECONFIG.exists():
        pytest.fail("the cluster is not up: run `make cluster` or `make test-cluster CONTEXT=name`")
    return KubernetesCluster(None, context) if context else KubernetesCluster(KUBECONFIG, "cornserve-test")


@pytest.fixture(scope="session")
def local_cluster(cluster: KubernetesCluster) -> KubernetesCluster:
    """The cluster of `make cluster`. Tests that reach into its processes and nodes are skipped on another one."""
    if not cluster.is_local:
        pytest.skip("needs the nodes of `make cluster`")
    return cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails skipped tests in CI."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longreprtext}"
    return report


@pytest.fixture
def cluster_namespace(cluster: KubernetesCluster) -> Iterator[str]:
    """The name of a new namespace with Pod Security `restricted`. It is deleted after the test."""
    name = f"cornserve-test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=180s")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
