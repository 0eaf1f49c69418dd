"""The controller can read the settings that the chart renders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cornserve.control.launcher.kubernetes.settings import (
    ClaimedSharedMemory,
    ClusterSettings,
    HostPathSharedMemory,
    NoSharedMemory,
)
from cornserve.limits import Limits
from tests.kubernetes.helm import CHART, Manifests, render


def settings(directory: Path, *options: str | Path) -> ClusterSettings:
    config_map = Manifests(render(*options)).get("ConfigMap", "cornserve-cluster-settings")
    file = directory / "settings.yaml"
    file.write_text(config_map["data"]["settings.yaml"])
    return ClusterSettings.load(file)


def test_default_settings_use_the_objects_of_the_chart(tmp_path: Path) -> None:
    loaded, manifests = settings(tmp_path), Manifests(render())

    assert loaded.shared_memory == NoSharedMemory()
    assert loaded.tls_secret_name is None
    assert not loaded.uses_gpus
    assert manifests.get("Secret", loaded.secret_name)
    assert loaded.controller_name == manifests.get("Deployment", "cornserve-controller")["metadata"]["name"]
    assert manifests.get("ServiceAccount", loaded.service_account_name)
    assert loaded.instance == manifests.pod("cornserve-gateway")["metadata"]["labels"]["app.kubernetes.io/instance"]


def test_all_values_reach_the_controller(tmp_path: Path) -> None:
    options = "limits.queue=7,executors.priorityClassName=high,executors.schedulerName=volcano,internalTls.enabled=true"
    loaded = settings(tmp_path, "--set", options, "--set", "images.pullSecrets={registry},images.tag=v2")

    assert Limits.parse(loaded.limits).queue == 7
    assert (loaded.priority_class_name, loaded.scheduler_name) == ("high", "volcano")
    assert loaded.tls_secret_name == "cornserve-tls"
    assert loaded.image_pull_secrets == ["registry"]
    assert loaded.cpu.image == "localhost/cornserve-executor-cpu:v2"
    assert loaded.pod_annotations == {}


@pytest.mark.parametrize(("port", "host"), [(80, "cornserve.team-a.svc"), (8080, "cornserve.team-a.svc:8080")])
def test_the_url_of_apps_is_that_of_the_service(tmp_path: Path, port: int, host: str) -> None:
    assert settings(tmp_path, "--set", f"gateway.service.port={port}").url == f"http://{host}/v1"


def test_gpu_values_share_memory_through_the_claim_of_the_chart(tmp_path: Path) -> None:
    values = ("--values", CHART / "values-gpu.yaml")
    loaded, manifests = settings(tmp_path, *values), Manifests(render(*values))

    assert isinstance(loaded.shared_memory, ClaimedSharedMemory)
    claim = manifests.get("PersistentVolumeClaim", loaded.shared_memory.claim_name)
    volume = manifests.get("PersistentVolume", claim["spec"]["volumeName"])
    assert volume["spec"]["local"] == {"path": "/dev/shm/cornserve-team-a"}
    assert loaded.uses_gpus
    assert loaded.gpu.max_surge == 0
    assert loaded.gpu.tolerations


def test_quantities_are_texts_or_numbers_as_in_kubernetes(tmp_path: Path) -> None:
    limits = {"cpu": 1.5, "memory": 8 << 30, "ephemeral-storage": "2097152Ki", "rdma/hca_shared_devices_a": 1}
    executors = {"cpu": {"resources": {"limits": limits}}, "privateSharedMemory": 1 << 30}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"executors": executors, "gateway": {"resources": {"requests": {"cpu": 1}}}}))

    loaded = settings(tmp_path, "--values", values)

    found = loaded.cpu.resources.limits
    assert found.pop("ephemeral-storage") == "2097152Ki"
    assert {name: float(amount) for name, amount in found.items()}.items() <= limits.items()
    assert float(loaded.private_shared_memory) == 1 << 30
    gateway = Manifests(render("--values", values)).pod("cornserve-gateway")["spec"]["containers"][0]
    assert gateway["resources"]["requests"]["cpu"] == 1


@pytest.mark.parametrize(("path", "expected"), [("", "/dev/shm/cornserve-team-a"), ("/mnt/shared", "/mnt/shared")])
def test_a_host_path_is_the_directory_of_the_namespace(tmp_path: Path, path: str, expected: str) -> None:
    options = f"executors.sharedMemory.type=hostPath,executors.sharedMemory.path={path}"

    assert settings(tmp_path, "--set", options).shared_memory == HostPathSharedMemory(type="hostPath", path=expected)


def test_a_controller_without_a_secret_ends_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(Manifests(render()).get("ConfigMap", "cornserve-cluster-settings")["data"]["settings.yaml"])

    secret = tmp_path / "secret"
    command = [sys.executable, "-m", "cornserve.control", "--kubernetes", f"--cluster-settings={file}"]
    result = subprocess.run([*command, f"--secret={secret}"], capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert result.stderr == f"cannot read the instance's secret {secret}: No such file or directory\n"


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.slow)])
def test_a_controller_ends_with_one_line_if_no_pod_could_be_replaced(tmp_path: Path, device: str) -> None:
    config_map = Manifests(render()).get("ConfigMap", "cornserve-cluster-settings")
    content = yaml.safe_load(config_map["data"]["settings.yaml"])
    content[device]["maxSurge"] = 0
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(content))

    command = [sys.executable, "-m", "cornserve.control", "--kubernetes", f"--cluster-settings={file}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    assert line == (
        f"the cluster settings {file} are not valid: {device}: maxSurge and maxUnavailable are both 0: no pod could be "
        "replaced: set one of them to 1"
    )
