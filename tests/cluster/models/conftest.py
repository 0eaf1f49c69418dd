"""A release whose executors run vLLM, and models in volumes of the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.cluster.programs import ROOT
from tests.cluster.conftest import KubernetesCluster
from tests.cluster.installation import Installation, installation, values
from tests.cluster.node_images import loaded_images
from tests.models.cache import cached_model

MODELS = ROOT / "tests" / "models"


@pytest.fixture(scope="session")
def installed(local_cluster: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A release whose nodes have the files of the models."""
    tag = loaded_images(local_cluster, "control", "executor-cpu")
    given = values(
        local_cluster, tag, control="cornserve-control", executors="cornserve-executor-cpu", drain_seconds=120
    )
    with installation(local_cluster, given, tmp_path_factory.mktemp("values")) as release:
        yield release


@pytest.fixture
def gateway_url(installed: Installation) -> Iterator[str]:
    with installed.forwarded() as url:
        yield url


@pytest.fixture(scope="session")
def smollm2(installed: Installation) -> Iterator[str]:
    """The name of a claim on the files of SmolLM2-135M-Instruct."""
    yield from _claim(installed, "smollm2", cached_model(ROOT / "examples" / "smollm2.py"))


@pytest.fixture(scope="session")
def tiny_qwen25vl(installed: Installation) -> Iterator[str]:
    """The name of a claim on the files of a Qwen2.5-VL with random weights."""
    imported = (MODELS / "byte_tokenizer.py", MODELS / "random_weights.py")
    yield from _claim(installed, "tiny-qwen25vl", cached_model(MODELS / "tiny_qwen25vl.py", *imported))


def _claim(installed: Installation, name: str, directory: Path) -> Iterator[str]:
    """Creates a volume of a directory that all nodes have, and a claim on it."""
    for file in directory.iterdir():
        file.chmod(0o644)
    volume = f"{name}-{installed.namespace}"
    shared: dict[str, Any] = {"accessModes": ["ReadOnlyMany"], "storageClassName": volume}
    size = {"storage": "1Gi"}
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [linux]}]}}
    local = {"local": {"path": str(directory)}, "nodeAffinity": affinity}
    retained = {"persistentVolumeReclaimPolicy": "Retain", "capacity": size}
    installed.cluster.apply(
        installed.namespace,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {**shared, **local, **retained},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {**shared, "resources": {"requests": size}},
        },
    )
    yield name
    installed.cluster.kubectl("delete", "persistentvolume", volume, "--wait=false")
