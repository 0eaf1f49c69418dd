"""Upgrades keep generated secrets, and restart only the pods whose settings change."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cornserve.access import Access
from cornserve.control import generated_secrets
from cornserve.instance_secret import InstanceSecret
from cornserve.wire.credentials import TlsContexts
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.helm import CHART, HelmRelease, Manifests, render

SECRETS = ("cornserve-instance", "cornserve-access", "cornserve-tls")
TLS = ("--set", "internalTls.enabled=true")


@pytest.fixture
def data(api_server: ApiServer, kube_namespace: str) -> Callable[[str], dict[str, str]]:
    """Returns the data of a Secret in the cluster."""

    def read(name: str) -> dict[str, str]:
        encoded = api_server.request("GET", f"/api/v1/namespaces/{kube_namespace}/secrets/{name}").get("data", {})
        return {key: base64.b64decode(value).decode() for key, value in encoded.items()}

    return read


@pytest.fixture
def run_job(
    service_account_kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Manifests], None]:
    """Runs the program of the Job that fills the Secrets, with the permissions of its ServiceAccount."""

    def run(manifests: Manifests) -> None:
        pod = manifests.get("Job")["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert container["command"] == ["python", "-m", generated_secrets.__name__]
        monkeypatch.setenv("KUBECONFIG", str(service_account_kubeconfig(pod["serviceAccountName"])))
        monkeypatch.setattr("sys.argv", ["generated_secrets", *container["args"]])
        assert poll_main() == 0

    def poll_main() -> int:
        """The API server uses a new RoleBinding a little later."""
        return next((0 for _ in range(100) if generated_secrets.main() == 0), 1)

    return run


def pod_annotations(manifests: Manifests, deployment: str) -> dict[str, str]:
    found: dict[str, str] = manifests.pod(deployment)["metadata"]["annotations"]
    return found


def write(directory: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (directory / name).write_text(content)
        (directory / name).chmod(0o440)


def test_the_processes_can_use_the_generated_secrets(
    release: HelmRelease,
    run_job: Callable[[Manifests], None],
    data: Callable[[str], dict[str, str]],
    tmp_path: Path,
) -> None:
    run_job(release.install(*TLS))
    for name in SECRETS:
        write(tmp_path, data(name))

    access = Access.load(tmp_path / "api-keys", tmp_path / "admin-token", environment={})

    assert len(access.api_keys) == 2
    assert data("cornserve-access")["api-key"] in access.api_keys
    assert data("cornserve-access")["metrics-key"] in access.api_keys
    access.check_exposure("0.0.0.0")
    InstanceSecret.load(tmp_path / "secret")
    contexts = TlsContexts.load(tmp_path)
    assert contexts.accepting.verify_mode is ssl.CERT_REQUIRED
    connect(contexts)


def connect(contexts: TlsContexts) -> None:
    """Both ends accept the certificate of the other one."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts.connecting.wrap_bio(to_client, to_server)
    server = contexts.accepting.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    server.do_handshake()


def test_an_upgrade_keeps_generated_secrets(
    release: HelmRelease, run_job: Callable[[Manifests], None], data: Callable[[str], dict[str, str]]
) -> None:
    run_job(release.install(*TLS))
    first = {name: data(name) for name in SECRETS}
    run_job(release.upgrade(*TLS, "--set", "controller.replicas=3"))

    assert {name: data(name) for name in SECRETS} == first
    assert re.fullmatch("[0-9a-f]{64}", first["cornserve-instance"]["secret"])


@pytest.mark.slow
def test_an_upgrade_that_changes_nothing_restarts_no_pod(release: HelmRelease) -> None:
    first, second = release.install(), release.upgrade()

    for deployment in ("cornserve-gateway", "cornserve-controller"):
        assert first.pod(deployment) == second.pod(deployment)


@pytest.mark.slow
def test_given_keys_replace_generated_keys_and_restart_nothing(
    release: HelmRelease, run_job: Callable[[Manifests], None], data: Callable[[str], dict[str, str]]
) -> None:
    key, token = "k" * 16, "t" * 16
    before = release.install()
    run_job(before)
    after = release.upgrade("--force-conflicts", "--set", f"access.apiKeys={{{key}}},access.adminToken={token}")
    run_job(after)

    access = data("cornserve-access")
    assert (access["admin-token"], access["api-keys"], access["metrics-key"]) == (token, f"{key}\n", key)
    for deployment in ("cornserve-gateway", "cornserve-controller"):  # gateways read the changed files
        assert before.pod(deployment) == after.pod(deployment)


@pytest.mark.slow
def test_a_given_instance_secret_restarts_gateways_and_executors(
    release: HelmRelease, run_job: Callable[[Manifests], None], data: Callable[[str], dict[str, str]]
) -> None:
    before = release.install()
    run_job(before)
    after = release.upgrade("--force-conflicts", "--set", f"instanceSecret.value={'a1' * 32}")
    run_job(after)

    assert data("cornserve-instance")["secret"] == "a1" * 32
    for deployment in ("cornserve-gateway", "cornserve-controller"):  # the controller restarts executors
        assert pod_annotations(before, deployment) != pod_annotations(after, deployment)


def test_a_job_keeps_what_the_job_of_another_revision_has_added_meanwhile(
    api_server: ApiServer,
    kube_namespace: str,
    kubeconfig: Path,
    data: Callable[[str], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = f"/api/v1/namespaces/{kube_namespace}/secrets"
    secret = api_server.request("POST", path, {"metadata": {"name": "cornserve-instance"}})
    value = "a1" * 32

    def add_before(current: generated_secrets.Data) -> generated_secrets.Data:
        if not current:
            encoded = base64.b64encode(value.encode()).decode()
            api_server.request("PUT", f"{path}/cornserve-instance", {**secret, "data": {"secret": encoded}})
        return instance_data(current)

    instance_data = generated_secrets.instance_data
    monkeypatch.setattr(generated_secrets, "instance_data", add_before)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr("sys.argv", ["generated_secrets", "--instance=cornserve-instance"])

    assert [generated_secrets.main() for _ in range(2)] == [1, 0]  # Kubernetes starts a container that has failed again
    assert data("cornserve-instance") == {"secret": value}


def test_the_job_reads_only_the_secrets_that_it_fills() -> None:
    given = "instanceSecret.existingSecret=a,access.existingSecret=b"
    every, none = Manifests(render()), Manifests(render("--set", given))
    some = Manifests(render("--set", "instanceSecret.existingSecret=a"))

    def names(manifests: Manifests) -> list[str]:
        [rule] = manifests.get("Role", "cornserve-secrets")["rules"]
        assert (rule["resources"], rule["verbs"]) == (["secrets"], ["get", "patch"])
        found: list[str] = rule["resourceNames"]
        return found

    assert names(every) == ["cornserve-access", "cornserve-instance"]
    assert names(some) == ["cornserve-access"]
    assert "Job" not in none
    assert "Secret" not in none


@pytest.mark.parametrize("options", [(), TLS, ("--values", CHART / "values-gpu.yaml")])
def test_the_chart_renders_the_same_manifests_each_time(options: tuple[str | Path, ...]) -> None:
    assert render(*options) == render(*options)


@pytest.mark.slow
def test_changed_executor_settings_restart_only_the_controller(release: HelmRelease) -> None:
    before = release.install()
    after = release.upgrade("--set", "executors.drainSeconds=5")

    assert before.pod("cornserve-gateway") == after.pod("cornserve-gateway")
    assert pod_annotations(before, "cornserve-controller") != pod_annotations(after, "cornserve-controller")
