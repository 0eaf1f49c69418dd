"""The commands of the page on the echo example, in the order of the page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.cluster.programs import LINKS, ROOT
from tests.cluster.conftest import KubernetesCluster
from tests.integration.docs.pages import sections
from tests.kubernetes.api_server import CRDS

PAGE = "docs/how-to/try-kubernetes.md"


class Shell:
    """Runs commands of the page in a separate namespace, with the images that are on the nodes."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, tag: str) -> None:
        self._namespace = namespace
        self._tag = tag
        path = f"{LINKS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "COLUMNS": "200"}
        if cluster.kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(cluster.kubeconfig)

    def run(self, command: str) -> str:
        command = command.replace("--namespace echo", f"--namespace {self._namespace}")
        command = command.replace("--values examples", f"--set images.tag={self._tag} --values examples")
        result = subprocess.run(
            command, shell=True, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{command}: {result.stderr}{result.stdout}"
        return result.stdout


def commands(start: str, end: str | None) -> list[str]:
    blocks = sections(PAGE, start=start, end=end)
    return [line.removeprefix("$ ") for block in blocks for line in block.code.splitlines()]


@pytest.fixture
def shell(cluster: KubernetesCluster, cluster_namespace: str, echo_tag: str) -> Shell:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
    return Shell(cluster, cluster_namespace, echo_tag)


def test_the_echo_example_is_installed_deployed_called_and_removed(shell: Shell) -> None:
    crds, install, doctor = commands("## Install", "## Deploy and call the app")
    apply, wait, invoke, status = commands("## Deploy and call the app", "## Remove everything")
    delete, uninstall = commands("## Remove everything", None)

    assert crds.endswith("helm/cornserve-crds")  # the CRDs are on the cluster
    shell.run(install)
    checks = shell.run(doctor).splitlines()
    assert len(checks) >= 10
    assert [line for line in checks if not line.startswith("✓ ")] == []
    shell.run(apply)
    shell.run(wait)
    assert "echo: Hello!" in shell.run(invoke)
    assert "2 of 2 ready" in shell.run(status)
    shell.run(wait.replace("kubectl", "cornserve").partition(" wait ")[0] + " wait echo --timeout 60")
    shell.run(delete)
    shell.run(uninstall)
