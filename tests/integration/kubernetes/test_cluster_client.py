"""The command line and the SDK against a gateway in a cluster: a real API server, and a kubelet without containers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve import AsyncClient, Client
from cornserve.cli.commands import app
from cornserve.client import ApiStatusError, ClusterError, ClusterUnreachableError
from scripts.cluster.control_plane import CONTEXT
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.stub_gateway import ADMIN_TOKEN, StubGateway
from tests.kubernetes.stub_kubelet import StubKubelet, stub_kubelet
from tests.unit.http_server import StubServer, json_response, serving, sse_response

APPS = "GET /admin/v1/apps"


@pytest.fixture
def server() -> Iterator[StubServer]:
    with serving() as server:
        server.on(APPS, json_response({"apps": [], "unreadable": []}))
        yield server


@pytest.fixture
def kubelet(api_server: ApiServer) -> Iterator[StubKubelet]:
    with stub_kubelet(api_server.files.directory) as kubelet:
        yield kubelet


@pytest.fixture
def gateway(api_server: ApiServer, kube_namespace: str, kubelet: StubKubelet) -> StubGateway:
    gateway = StubGateway(api_server, kube_namespace, kubelet)
    gateway.install()
    return gateway


@pytest.fixture
def cli(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    for name in ("CORNSERVE_URL", "CORNSERVE_ADMIN_TOKEN", "CORNSERVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})


def port_of(server: StubServer) -> int:
    return int(server.url.rpartition(":")[2])


def test_a_command_reaches_the_gateway_with_the_token_of_the_installation(
    cli: CliRunner, gateway: StubGateway, server: StubServer
) -> None:
    gateway.add_pod("gateway-0", port_of(server))

    result = cli.invoke(app, ["--context", CONTEXT, "status", "--json"])

    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["apps"] == []
    assert server.headers[0]["Authorization"] == f"Bearer {ADMIN_TOKEN}"


def test_the_environment_selects_the_cluster(
    cli: CliRunner, gateway: StubGateway, server: StubServer, kube_namespace: str
) -> None:
    gateway.add_pod("gateway-0", port_of(server))

    result = cli.invoke(app, ["status"], env={"CORNSERVE_CONTEXT": CONTEXT, "CORNSERVE_NAMESPACE": kube_namespace})

    assert result.exit_code == 0
    assert result.stdout.startswith(f"Cornserve at the namespace '{kube_namespace}' of the context '{CONTEXT}'")


def test_a_large_request_and_a_stream_pass(
    cli: CliRunner, gateway: StubGateway, server: StubServer, kube_namespace: str
) -> None:
    gateway.add_pod("gateway-0", port_of(server))
    text = "x" * 5_000_000
    server.on("POST /v1/apps/a/invoke", sse_response(("item", {"stream": "s", "item": text}), ("result", {"n": 1})))

    with Client.for_cluster(CONTEXT, kube_namespace) as client:
        events = list(client.stream("a", {"text": text}))

    assert server.requests == [("POST /v1/apps/a/invoke", {"text": text})]
    assert [len(events), events[0].item == text] == [2, True]  # type: ignore[union-attr]


async def test_concurrent_calls_of_the_asynchronous_client_reach_the_gateway(
    cli: CliRunner, gateway: StubGateway, server: StubServer
) -> None:
    await asyncio.to_thread(gateway.add_pod, "gateway-0", port_of(server))
    server.on("POST /v1/apps/a/invoke", json_response({"n": 1}))

    async with await AsyncClient.for_cluster(CONTEXT) as client:
        responses = await asyncio.gather(*(client.invoke("a", {}) for _ in range(8)))

    assert responses == [{"n": 1}] * 8


def test_a_client_goes_on_with_another_pod_when_its_pod_is_deleted(
    cli: CliRunner, gateway: StubGateway, server: StubServer, kubelet: StubKubelet
) -> None:
    gateway.add_pod("gateway-0", port_of(server))
    with Client.for_cluster(CONTEXT) as client:
        gateway.add_pod("gateway-1", port_of(server))
        gateway.delete_pod("gateway-0")

        client.apps()

    assert kubelet.connections[-1] == "gateway-1"


def test_a_call_that_the_pod_refuses_is_not_sent(
    cli: CliRunner, gateway: StubGateway, server: StubServer, kubelet: StubKubelet
) -> None:
    gateway.add_pod("gateway-0", 1)

    with Client.for_cluster(CONTEXT, retries=0) as client, pytest.raises(ClusterUnreachableError, match="refused"):
        client.invoke("a", {})


def test_an_error_of_the_gateway_is_not_one_of_the_cluster(
    cli: CliRunner, gateway: StubGateway, server: StubServer
) -> None:
    gateway.add_pod("gateway-0", port_of(server))
    server.on(APPS, json_response({"error": {"message": "overloaded"}}, 502))

    with Client.for_cluster(CONTEXT) as client, pytest.raises(ApiStatusError, match="overloaded"):
        client.apps()


def test_a_selected_pod_without_the_port_is_reported(
    cli: CliRunner, gateway: StubGateway, api_server: ApiServer, kube_namespace: str
) -> None:
    gateway.add_pod("gateway-0", 1)
    service = {"spec": {"ports": [{"name": "http", "port": 80, "targetPort": "web"}]}}
    arguments = ("patch", "service", "cornserve-gateway", "-n", kube_namespace, "-p", json.dumps(service))
    api_server.kubectl(*arguments)

    assert "but has no port named 'web'" in fails(cli, "--context", CONTEXT)


def fails(cli: CliRunner, *arguments: str) -> str:
    """Runs a command, and returns its error, which must be one line."""
    result = cli.invoke(app, [*arguments, "status"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    return result.stderr


def test_an_unknown_context_is_reported_with_the_known_ones(cli: CliRunner) -> None:
    error = fails(cli, "--context", "nowhere")
    assert "nowhere" in error
    assert error.endswith(f"give one of its contexts: {CONTEXT}\n")


def test_a_missing_kubeconfig_is_reported(cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert "missing does not exist: set KUBECONFIG" in fails(cli, "--context", CONTEXT)


def test_a_namespace_without_gateway_is_reported(cli: CliRunner, kube_namespace: str) -> None:
    error = fails(cli, "--context", CONTEXT)
    assert error.startswith(f"error: no gateway is installed in the namespace {kube_namespace!r} of the context")
    assert "helm install" in error


def test_a_gateway_that_is_not_ready_is_reported_with_the_reason(cli: CliRunner, gateway: StubGateway) -> None:
    gateway.add_pod("gateway-0", 1, ready=False)
    assert "is not ready: gateway-0: ImagePullBackOff: no such image" in fails(cli, "--context", CONTEXT)


def test_a_missing_permission_is_reported(
    cli: CliRunner, service_account_kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(service_account_kubeconfig("default")))
    error = fails(cli, "--context", CONTEXT)
    assert f"the user of the context {CONTEXT!r} lacks a permission: services is forbidden" in error


def test_refused_credentials_are_reported(
    cli: CliRunner, api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api_server.files.write_kubeconfig(file := tmp_path / "expired", "an-expired-token")
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert f"the API server refuses the credentials of the context {CONTEXT!r}" in fails(cli, "--context", CONTEXT)


def test_an_unreachable_api_server_is_reported(
    cli: CliRunner, kubeconfig: Path, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig.write_text(kubeconfig.read_text().replace(api_server.url, "https://127.0.0.1:1"))
    assert "cannot reach the Kubernetes API server https://127.0.0.1:1" in fails(cli, "--context", CONTEXT)


def test_the_sdk_raises_the_errors_of_the_cluster(cli: CliRunner) -> None:
    with pytest.raises(ClusterError, match="no gateway is installed"):
        Client.for_cluster(CONTEXT)
