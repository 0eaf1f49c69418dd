"""Images on the nodes: the busybox image, and images that are given as OCI archives."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Final

from scripts.cluster.machines import KEPT_IMAGES, ClusterNode
from scripts.cluster.node_files import PAUSE_IMAGE
from scripts.cluster.shell import run

_BUSYBOX_DOCKERFILE: Final = """\
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN ["/bin/mkdir", "-m", "1777", "/tmp"]
USER 65535
ENTRYPOINT ["/bin/sleep", "infinity"]
"""


def busybox_image() -> Path:
    """Returns an OCI archive with the statically linked busybox of this machine. Builds it if it is missing."""
    digest = hashlib.sha256(_BUSYBOX_DOCKERFILE.encode()).hexdigest()
    archive = KEPT_IMAGES / f"busybox-{digest[:12]}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "Dockerfile").write_text(_BUSYBOX_DOCKERFILE)
            (Path(directory) / "busybox").write_bytes(Path("/bin/busybox").read_bytes())
            (Path(directory) / "busybox").chmod(0o755)
            buildah = ["buildah", "--root", f"{directory}/storage", "--storage-driver", "vfs"]
            run(*buildah, "bud", "--isolation", "chroot", "-t", PAUSE_IMAGE, directory)
            run(*buildah, "push", PAUSE_IMAGE, f"oci-archive:{archive}:{PAUSE_IMAGE}")
    return archive


def load_image(node: ClusterNode, archive: Path) -> None:
    """Imports the images of an OCI or Docker archive into the container runtime of a node."""
    run("ctr", "--address", node.containerd_socket, "--namespace", "k8s.io", "images", "import", archive)


def remove_containers(node: ClusterNode) -> None:
    """Removes the containers that ran before the last `down`, which the kubelet of a new cluster does not know."""
    ctr = ("ctr", "--address", node.containerd_socket, "--namespace", "k8s.io")
    containers = run(*ctr, "containers", "list", "--quiet").split()
    if containers:
        run(*ctr, "containers", "delete", *containers)
