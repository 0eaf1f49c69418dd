"""Upgrades keep generated secrets, and restart only the pods whose settings change."""

from __future__ import annotations

import base64
import re
import ssl
from pathlib import Path

import pytest

from cornserve.access import Access
from cornserve.instance_secret import InstanceSecret
from cornserve.wire.credentials import TlsContexts
from tests.kubernetes.helm import HelmRelease, Manifests

SECRETS = ("cornserve-instance", "cornserve-access", "cornserve-tls")


def data(manifests: Manifests, name: str) -> dict[str, str]:
    encoded = manifests.get("Secret", name)["data"]
    return {key: base64.b64decode(value).decode() for key, value in encoded.items()}


def pod_annotations(manifests: Manifests, deployment: str) -> dict[str, str]:
    found: dict[str, str] = manifests.pod(deployment)["metadata"]["annotations"]
    return found


def write(directory: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (directory / name).write_text(content)
        (directory / name).chmod(0o440)


def test_the_processes_can_use_the_generated_secrets(release: HelmRelease, tmp_path: Path) -> None:
    manifests = release.install("--set", "internalTls.enabled=true")
    for name in SECRETS:
        write(tmp_path, data(manifests, name))

    access = Access.load(tmp_path / "api-keys", tmp_path / "admin-token", environment={})

    assert len(access.api_keys) == 2
    assert data(manifests, "cornserve-access")["api-key"] in access.api_keys
    assert data(manifests, "cornserve-access")["metrics-key"] in access.api_keys
    access.check_exposure("0.0.0.0")
    InstanceSecret.load(tmp_path / "secret")
    assert TlsContexts.load(tmp_path).accepting.verify_mode is ssl.CERT_REQUIRED


def test_an_upgrade_keeps_generated_secrets(release: HelmRelease) -> None:
    first = release.install("--set", "internalTls.enabled=true")
    second = release.upgrade("--set", "internalTls.enabled=true,controller.replicas=3")

    for name in SECRETS:
        assert data(first, name) == data(second, name)
    assert re.fullmatch("[0-9a-f]{64}", data(first, "cornserve-instance")["secret"])


def test_an_upgrade_that_changes_nothing_restarts_no_pod(release: HelmRelease) -> None:
    first, second = release.install(), release.upgrade()

    for deployment in ("cornserve-gateway", "cornserve-controller"):
        assert first.pod(deployment) == second.pod(deployment)


@pytest.mark.slow
def test_given_keys_replace_generated_keys_and_restart_gateways(release: HelmRelease) -> None:
    key, token = "k" * 16, "t" * 16
    before = release.install()
    after = release.upgrade("--set", f"access.apiKeys={{{key}}},access.adminToken={token}")

    access = data(after, "cornserve-access")
    assert access["admin-token"] == token
    assert access["api-keys"].splitlines() == [key, "# for Prometheus", access["metrics-key"]]
    assert "api-key" not in access
    assert pod_annotations(before, "cornserve-gateway") != pod_annotations(after, "cornserve-gateway")
    assert pod_annotations(before, "cornserve-controller") == pod_annotations(after, "cornserve-controller")


@pytest.mark.slow
def test_a_new_instance_secret_restarts_gateways_and_executors(release: HelmRelease) -> None:
    before = release.install()
    after = release.upgrade("--set", f"instanceSecret.value={'a1' * 32}")

    assert data(after, "cornserve-instance")["secret"] == "a1" * 32
    for deployment in ("cornserve-gateway", "cornserve-controller"):  # the controller restarts executors
        assert pod_annotations(before, deployment) != pod_annotations(after, deployment)


@pytest.mark.slow
def test_changed_executor_settings_restart_only_the_controller(release: HelmRelease) -> None:
    before = release.install()
    after = release.upgrade("--set", "executors.drainSeconds=5")

    assert before.pod("cornserve-gateway") == after.pod("cornserve-gateway")
    assert pod_annotations(before, "cornserve-controller") != pod_annotations(after, "cornserve-controller")
