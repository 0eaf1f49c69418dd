"""The images of this checkout, on the nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from scripts.cluster.images import load_image
from scripts.cluster.machines import ClusterNode, existing_nodes
from scripts.cluster.programs import ROOT
from scripts.cluster.shell import run
from tests.cluster.conftest import KubernetesCluster

TAG: Final = "CORNSERVE_TEST_TAG"
"""The environment variable with the tag of the images on another cluster than that of `make cluster`."""


def loaded_image(cluster: KubernetesCluster, name: str) -> str:
    """Builds the image `cornserve-NAME` and loads it into the nodes that lack it. Returns its tag.

    The tag is a hash of the image's files, so that checkouts can share a cluster.
    """
    if not cluster.is_local:
        return os.environ.get(TAG, "dev")
    built = subprocess.run([ROOT / "kubernetes/images/build", name], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    archive = Path(built.stdout.strip())
    tag = archive.stem.rpartition("-")[2]
    repository = f"localhost/cornserve-{name}"
    for node in existing_nodes():
        if not _ctr(node, "list", "--quiet", f"name=={repository}:{tag}"):
            load_image(node, archive)
            _ctr(node, "tag", "--force", f"{repository}:dev", f"{repository}:{tag}")
    return tag


def _ctr(node: ClusterNode, *arguments: str) -> str:
    return run("ctr", "--address", node.containerd_socket, "--namespace", "k8s.io", "images", *arguments)
