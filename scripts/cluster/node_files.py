"""The configuration files and the processes of a node."""

from __future__ import annotations

import json
from typing import Any, Final

from scripts.cluster.control_plane import ControlPlaneFiles
from scripts.cluster.machines import CONTROL_PLANE, POD_NETWORK, ClusterNode
from scripts.cluster.programs import program

PAUSE_IMAGE: Final = "localhost/cornserve-busybox:1"
"""The image that holds a pod's namespaces; it also has a shell and the usual commands, for tests."""
SHARED_MEMORY_BYTES: Final = 1 << 30
"""The size of /dev/shm on a node."""

_MOUNTED: Final = {
    "run-containerd": "/run/containerd",
    "netns": "/run/netns",
    "cni": "/var/lib/cni",
    "kubelet": "/var/lib/kubelet",
    "pod-logs": "/var/log/pods",
    "container-logs": "/var/log/containers",
}
"""The directories of a node by their names in its directory, so that its programs use their default paths."""

_CONTAINERD: Final = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true  # runc may not have the permission to lower it
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s"
"""


def write_node(node: ClusterNode, images: str, control_plane: ControlPlaneFiles) -> None:
    """Writes the files of a node. Its containerd keeps images in the directory `images`."""
    for name in (*_MOUNTED, "cni-config"):
        (node.directory / name).mkdir(parents=True)
    (node.directory / "containerd.toml").write_text(_CONTAINERD % (node.directory / "cni-config"))
    (node.directory / "cni-config" / "10-bridge.conflist").write_text(json.dumps(_cni(node)))
    (node.directory / "kubelet.json").write_text(json.dumps(_kubelet(node)))
    for user, file in ((f"system:node:{node.name}", "kubelet"), ("system:kube-proxy", "kube-proxy")):
        control_plane.write_kubeconfig(node.directory / f"{file}.kubeconfig", control_plane.token(user))
    machine = {"mounts": _mounts(node, images), "processes": _processes(node)}
    (node.directory / "machine.json").write_text(json.dumps(machine, indent=2))


def _mounts(node: ClusterNode, images: str) -> list[list[str]]:
    binds = {images: "/var/lib/containerd", **{str(node.directory / name): path for name, path in _MOUNTED.items()}}
    return [
        ["mount", "--make-rshared", "/"],
        ["mkdir", "-p", *binds.values()],
        *(["mount", "--bind", source, target] for source, target in binds.items()),
        ["mount", "-t", "tmpfs", "-o", f"size={SHARED_MEMORY_BYTES},mode=1777", "tmpfs", "/dev/shm"],
        ["mkdir", "/dev/shm/cornserve"],
    ]


def _processes(node: ClusterNode) -> dict[str, list[str]]:
    return {
        "containerd": ["containerd", "--config", "containerd.toml"],
        "kubelet": [
            str(program("kubelet")),
            "--config=kubelet.json",
            "--kubeconfig=kubelet.kubeconfig",
            f"--node-ip={node.address}",
            f"--hostname-override={node.name}",
            f"--node-labels=topology.kubernetes.io/region=test,topology.kubernetes.io/zone=zone-{node.name}",
        ],
        "kube-proxy": [
            str(program("kube-proxy")),
            "--kubeconfig=kube-proxy.kubeconfig",
            "--proxy-mode=nftables",
            f"--hostname-override={node.name}",
            f"--cluster-cidr={POD_NETWORK}.0.0/16",
            f"--bind-address={node.address}",
            "--conntrack-max-per-core=0",  # these settings are the whole machine's
            "--conntrack-min=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ],
    }


def _cni(node: ClusterNode) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_network}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "bridge", "plugins": [bridge]}


def _kubelet(node: ClusterNode) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "clusterDNS": [CONTROL_PLANE.address],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "",  # pods do not reach the name servers of this machine
        "shutdownGracePeriod": "0s",
    }
