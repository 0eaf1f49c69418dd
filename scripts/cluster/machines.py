"""The machines of the cluster: a control plane and nodes, each with its own namespaces on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.cluster.programs import ROOT

STATE: Final = Path("/var/lib/cornserve-cluster")
"""The files of the cluster. `down` removes them, except for `KEPT_IMAGES`."""
KEPT_IMAGES: Final = STATE / "images"
"""The images that were loaded into nodes. They are there again after the next `up`."""
KUBECONFIG: Final = ROOT / ".cache" / "kubernetes" / "cluster" / "kubeconfig"
"""A copy of the administrator's kubeconfig file, for people and tests."""

NETWORK: Final = "10.123.0"
POD_NETWORK: Final = "10.244"
HOST_ADDRESS: Final = f"{NETWORK}.254"


@dataclass(frozen=True)
class ClusterMachine:
    """A network namespace and a directory."""

    name: str
    number: int
    """The last byte of the address."""

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def network_namespace(self) -> str:
        return f"cornserve-{self.name}"

    @property
    def directory(self) -> Path:
        return STATE / self.name


@dataclass(frozen=True)
class ClusterNode(ClusterMachine):
    """A machine with a kubelet and a container runtime."""

    @property
    def pod_network(self) -> str:
        return f"{POD_NETWORK}.{self.number}.0/24"

    @property
    def cgroup(self) -> str:
        return f"cornserve-{self.name}"

    @property
    def containerd_socket(self) -> Path:
        return self.directory / "run-containerd" / "containerd.sock"


CONTROL_PLANE: Final = ClusterMachine("control-plane", 1)


def node(index: int) -> ClusterNode:
    """Returns a node by its index, which counts from 1."""
    return ClusterNode(f"node-{index}", 10 + index)


def existing_nodes() -> list[ClusterNode]:
    """Returns the nodes of the cluster that is up."""
    indices = (int(directory.name.removeprefix("node-")) for directory in STATE.glob("node-*"))
    return [node(index) for index in sorted(indices)]
