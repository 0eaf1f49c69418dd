"""`cornserve doctor` of a cluster, against a real API server without nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from scripts.cluster.control_plane import CONTEXT
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.stub_gateway import StubGateway
from tests.kubernetes.stub_kubelet import stub_kubelet


@pytest.fixture
def cli(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})


def check(cli: CliRunner, name: str, *options: str) -> dict[str, Any]:
    """Returns the result of one check."""
    result = cli.invoke(app, ["--context", CONTEXT, *options, "doctor", "--json"])
    assert result.stdout, f"{result.exception!r}: {result.output}"
    checks: list[dict[str, Any]] = json.loads(result.stdout)["checks"]
    return next(check for check in checks if check["name"] == name)


def test_the_version_and_the_namespace_of_a_cluster_are_shown(cli: CliRunner, kube_namespace: str) -> None:
    assert check(cli, "Kubernetes")["ok"]
    assert check(cli, "namespace")["found"] == f"{kube_namespace}, Pod Security restricted"
    assert check(cli, "permissions")["found"] == "commands can reach the gateway"


def test_what_is_not_installed_is_reported_with_the_command_that_installs_it(
    cli: CliRunner, kube_namespace: str
) -> None:
    result = cli.invoke(app, ["--context", CONTEXT, "doctor"])

    assert result.exit_code == 1
    assert f"→ install Cornserve: `helm install cornserve helm/cornserve -n {kube_namespace}`" in result.stdout
    assert "Cornserve cannot run in this cluster until these are fixed: " in result.stdout


def test_a_missing_namespace_is_reported(cli: CliRunner) -> None:
    found = check(cli, "namespace", "--namespace", "nowhere")
    assert (found["ok"], found["found"]) == (False, "nowhere does not exist")


def test_missing_permissions_are_reported_and_other_checks_do_not_fail(
    cli: CliRunner, service_account_kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(service_account_kubeconfig("default")))

    permissions, pods, gpus = (check(cli, name) for name in ("permissions", "gateway", "GPUs"))

    assert permissions["found"] == ("missing: list services, list pods, get pods/portforward, create pods/portforward")
    assert (pods["ok"], pods["found"]) == (True, "unknown: you may not list pods")
    assert (gpus["ok"], gpus["found"]) == (True, "unknown: you may not list nodes")


def test_an_unreachable_api_server_is_the_only_result(cli: CliRunner, kubeconfig: Path, api_server: ApiServer) -> None:
    kubeconfig.write_text(kubeconfig.read_text().replace(api_server.url, "https://127.0.0.1:1"))

    result = cli.invoke(app, ["--context", CONTEXT, "doctor", "--json"])

    assert result.exit_code == 1
    assert [check["name"] for check in json.loads(result.stdout)["checks"]] == ["API server"]


def test_executors_are_found_by_the_labels_of_the_launcher(
    cli: CliRunner, api_server: ApiServer, kube_namespace: str
) -> None:
    labels = {
        "app.kubernetes.io/name": "echo",
        "app.kubernetes.io/component": "executor",
        "app.kubernetes.io/part-of": "cornserve",
    }
    with stub_kubelet(api_server.files.directory) as kubelet:
        gateway = StubGateway(api_server, kube_namespace, kubelet)
        gateway.install()
        gateway.add_pod("echo-1-x", 1, ready=False, labels=labels)

    executors = check(cli, "executors")

    assert executors["found"] == "0 of 1 pods ready; echo-1-x: ImagePullBackOff: no such image"
    assert not executors["is_essential"]


def test_executors_that_gateways_cannot_find_are_reported(
    cli: CliRunner, api_server: ApiServer, kube_namespace: str
) -> None:
    labels = {
        "app.kubernetes.io/component": "executor",
        "app.kubernetes.io/part-of": "cornserve",
        "cornserve.ai/executor": "echo-1",
    }
    with stub_kubelet(api_server.files.directory) as kubelet:
        gateway = StubGateway(api_server, kube_namespace, kubelet)
        gateway.install()
        gateway.add_pod("echo-1-x", 1, labels=labels)

    executors = check(cli, "executors")
    assert not executors["ok"]
    assert executors["found"] == (
        "1 of 1 pods ready; no EndpointSlice contains those of echo-1, so gateways cannot find them"
    )

    path = f"/apis/discovery.k8s.io/v1/namespaces/{kube_namespace}/endpointslices"
    endpoint_slice = {
        "metadata": {"name": "echo-1-a", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"port": 9000}],
    }
    api_server.request("POST", path, endpoint_slice)
    del labels["cornserve.ai/executor"]
    api_server.request("POST", path, {**endpoint_slice, "metadata": {"name": "gateway-a", "labels": labels}})
    assert check(cli, "executors")["ok"]


def test_files_of_this_machine_are_not_repaired_with_a_cluster(cli: CliRunner) -> None:
    result = cli.invoke(app, ["--context", CONTEXT, "doctor", "--repair"])
    assert result.exit_code == 2
    assert "--repair repairs files of this machine" in result.stderr


def test_the_installed_crds_are_current(cli: CliRunner) -> None:
    assert check(cli, "CRDs") == {"name": "CRDs", "ok": True, "found": "current", "remedy": "", "is_essential": False}
