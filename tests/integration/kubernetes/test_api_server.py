"""The API server for tests: permissions, Pod Security, controllers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from scripts.cluster.programs import program
from tests.kubernetes.api_server import ApiServer
from tests.waiting import until


def can(kubeconfig: Path, *action: str) -> bool:
    command = [str(program("kubectl")), f"--kubeconfig={kubeconfig}", "auth", "can-i", *action]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def deployment(replicas: int) -> dict[str, Any]:
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "main", "image": "localhost/none", "securityContext": security}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    return {"metadata": {"name": "a"}, "spec": spec}


def test_a_service_account_may_do_only_what_a_role_grants(
    api_server: ApiServer,
    kube_namespace: str,
    kubeconfig: Path,
    service_account_kubeconfig: Callable[[str], Path],
) -> None:
    api_server.kubectl("create", "role", "reader", "--verb=get", "--resource=pods", "-n", kube_namespace)
    account = f"--serviceaccount={kube_namespace}:default"
    api_server.kubectl("create", "rolebinding", "reader", "--role=reader", account, "-n", kube_namespace)

    reader = service_account_kubeconfig("default")

    assert can(reader, "get", "pods")
    assert not can(reader, "delete", "pods")
    assert can(kubeconfig, "delete", "pods")


def test_a_namespace_refuses_pods_that_are_not_restricted(api_server: ApiServer, kube_namespace: str) -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "localhost/none"}]}}

    with pytest.raises(httpx2.HTTPStatusError, match="403 Forbidden"):
        api_server.request("POST", f"/api/v1/namespaces/{kube_namespace}/pods", pod)


@pytest.mark.slow
async def test_a_deployment_of_the_control_plane_gets_pods(control_plane: ApiServer) -> None:
    namespace = control_plane.create_namespace()

    control_plane.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(replicas=2))

    pods = f"/api/v1/namespaces/{namespace}/pods"
    await until(lambda: len(control_plane.request("GET", pods)["items"]) == 2)
