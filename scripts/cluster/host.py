"""The requirements of the cluster on this machine: Linux, root, and Debian packages, which it installs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from scripts.cluster.machines import STATE, ClusterNode
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
_USERS: Final = Path("/proc/self/uid_map")
_ALL_USERS: Final = ["0", "0", "4294967295"]
"""The users of a machine. The root of a container without privileges has other ones."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_FREE_BYTES: Final = 5 * 10**9
"""Disk space for the nodes with the small images."""
_NAMESPACES_AND_MOUNTS: Final = """\
unshare --net --pid --mount --fork true && cd "$1" && mkdir lower upper work merged &&
    mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged && umount merged
"""


def prepare_host() -> None:
    """Installs what is missing. Raises `LocalClusterError` on a machine that cannot run the cluster."""
    if platform.system() != "Linux" or os.geteuid() != 0 or _USERS.read_text().split() != _ALL_USERS:
        raise LocalClusterError(
            "the cluster for tests needs Linux and root. Use an existing cluster: make test-cluster CONTEXT=name"
        )
    _check_capabilities()
    missing = [package for command, package in _PACKAGES.items() if not shutil.which(command)]
    if missing:
        _install(missing)
    if not Path("/proc/sys/net/bridge").exists() and not succeeds("modprobe", "br_netfilter"):
        raise LocalClusterError(
            "the kernel module br_netfilter is missing: pods of one node do not reach Services without it."
        )


def uses_cgroups_v2() -> bool:
    return (_CGROUPS / "cgroup.controllers").exists()


def _check_capabilities() -> None:
    """Raises `LocalClusterError` if this machine, for example a container, restricts root too much."""
    STATE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(STATE).free
    if free < _FREE_BYTES:
        raise LocalClusterError(
            f"{STATE} has {free / 1e9:.1f} GB of free disk, and the nodes need {_FREE_BYTES / 1e9:.0f} GB."
        )
    with tempfile.TemporaryDirectory(dir=STATE) as directory:
        if not succeeds("sh", "-c", _NAMESPACES_AND_MOUNTS, "sh", directory):
            raise LocalClusterError("this machine does not permit namespaces or overlay mounts, which nodes need.")
    try:
        for hierarchy in _hierarchies():
            os.rmdir(tempfile.mkdtemp(prefix="cornserve-", dir=hierarchy))
    except OSError as error:
        raise LocalClusterError(f"this machine does not permit control groups, which nodes need: {error}") from None


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
    if uses_cgroups_v2():
        return [_CGROUPS]
    return [path for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]
