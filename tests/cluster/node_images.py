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


def loaded_images(cluster: KubernetesCluster, *names: str) -> str:
    """Builds the images `cornserve-NAME` and loads them into the nodes that lack them. Returns their common tag.

    The tag is made of hashes of the images' files, so that checkouts can share a cluster.
    """
    if not cluster.is_local:
        return os.environ.get(TAG, "dev")
    archives = {name: build_image(name) for name in names}
    tag = "-".join(archive.stem.rpartition("-")[2] for archive in archives.values())
    for node in existing_nodes():
        for name, archive in archives.items():
            image = f"localhost/cornserve-{name}"
            if not _ctr(node, "list", "--quiet", f"name=={image}:{tag}"):
                load_image(node, archive)
                _ctr(node, "tag", "--force", f"{image}:dev", f"{image}:{tag}")
    return tag


def second_tag(tag: str) -> str:
    """Gives the images of examples/echo on the nodes another tag, and returns it."""
    for node in existing_nodes():
        _ctr(node, "tag", "--force", f"localhost/cornserve-echo:{tag}", f"localhost/cornserve-echo:{tag}-second")
    return f"{tag}-second"


def build_image(name: str) -> Path:
    """Returns the archive of an image, which is built if its files have changed."""
    built = subprocess.run([ROOT / "kubernetes/images/build", name], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    return Path(built.stdout.strip())


def _ctr(node: ClusterNode, *arguments: str) -> str:
    return run("ctr", "--address", node.containerd_socket, "--namespace", "k8s.io", "images", *arguments)
