"""The requirements of the cluster on this machine: Linux, root, and Debian packages, which it installs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from scripts.cluster.machines import ClusterNode
from scripts.cluster.shell import LocalClusterError, succeeds

_PACKAGES: Final = {
    "/bin/busybox": "busybox-static",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "buildah": "buildah",
    "containerd": "containerd",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "nft": "nftables",
    "runc": "runc",
}
"""The Debian packages by a command of each. A machine with Docker has some commands from other packages."""
_CGROUPS: Final = Path("/sys/fs/cgroup")


def prepare_host() -> None:
    """Installs what is missing. Raises `LocalClusterError` on a machine that cannot run the cluster."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise LocalClusterError(
            "the cluster for tests needs Linux and root. Use an existing cluster: make test-cluster CONTEXT=name"
        )
    missing = [package for command, package in _PACKAGES.items() if not shutil.which(command)]
    if missing:
        _install(missing)
    if not Path("/proc/sys/net/bridge").exists() and not succeeds("modprobe", "br_netfilter"):
        raise LocalClusterError(
            "the kernel module br_netfilter is missing: pods of one node do not reach Services without it."
        )


def _install(packages: list[str]) -> None:
    if not shutil.which("apt-get"):
        raise LocalClusterError(
            f"these Debian packages or their equivalents are missing: {' '.join(packages)}. Install them."
        )
    print(f"Installing with apt-get: {' '.join(packages)}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, stdout=sys.stderr, check=False)
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages]
    if subprocess.run(install, env=environment, stdout=sys.stderr, check=False).returncode:
        raise LocalClusterError(f"apt-get could not install {' '.join(packages)} (see above).")


def create_cgroups(node: ClusterNode) -> None:
    """Creates the control group of a node, in each hierarchy of version 1 or in the only one of version 2."""
    for hierarchy in _hierarchies():
        group = hierarchy / node.cgroup
        group.mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":  # new groups have no CPUs and memory nodes, and then no processes
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((hierarchy / file).read_text())


def delete_cgroups(node: ClusterNode) -> bool:
    """Deletes the control groups of a node. Returns False if some still have processes."""
    try:
        for hierarchy in _hierarchies():
            for directory, _, _ in os.walk(hierarchy / node.cgroup, topdown=False):
                os.rmdir(directory)
    except OSError:
        return False
    return True


def _hierarchies() -> list[Path]:
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [path for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]
