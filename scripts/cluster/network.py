"""The network of the cluster: a bridge on the control plane, a link to each node and one to this machine.

This machine reaches API server and nodes, but does not forward: the cluster has no way out.
"""

from __future__ import annotations

import json

from scripts.cluster.control_plane import SERVICE_NETWORK
from scripts.cluster.machines import CONTROL_PLANE, HOST_ADDRESS, NETWORK, ClusterMachine, ClusterNode
from scripts.cluster.shell import LocalClusterError, run, succeeds

_HOST_LINK = "cornserve0"


def create_network(nodes: list[ClusterNode]) -> None:
    """Creates namespaces, links and routes."""
    check_network_is_free()
    _create_namespace(CONTROL_PLANE)
    _ip(CONTROL_PLANE, "link add eth0 type bridge")
    _configure(CONTROL_PLANE)
    for node in nodes:
        _create_namespace(node)
        _connect(node.name, f"link add eth0 type veth peer name {node.name} netns", node)
        _configure(node)
    for node in nodes:
        _ip(node, f"route add {SERVICE_NETWORK} dev eth0")  # local processes need a route before kube-proxy translates
        for other in (CONTROL_PLANE, *nodes):
            if other != node:
                _ip(other, f"route add {node.pod_network} via {node.address}")
    _connect_host()


def delete_network() -> None:
    """Deletes all namespaces with their links. Does nothing if they do not exist."""
    for namespace in json.loads(run("ip", "-json", "netns", "list") or "[]"):
        if namespace["name"].startswith("cornserve-"):
            run("ip", "netns", "delete", namespace["name"])
    if succeeds("ip", "link", "show", _HOST_LINK):
        run("ip", "link", "delete", _HOST_LINK)


def check_network_is_free() -> None:
    """Raises `LocalClusterError` if this machine reaches another network by the addresses of the cluster."""
    network = f"{NETWORK}.0/24"
    routes = run("ip", "route", "show", "root", network)
    if routes:
        raise LocalClusterError(
            f"this machine has a route to {network}, which the cluster needs: {routes.splitlines()[0]}"
        )


def _create_namespace(machine: ClusterMachine) -> None:
    run("ip", "netns", "add", machine.network_namespace)
    _ip(machine, "link set lo up")
    run("nsenter", f"--net=/run/netns/{machine.network_namespace}", "sysctl", "-qw", "net.ipv4.ip_forward=1")


def _connect(port: str, add_link: str, machine: ClusterMachine) -> None:
    """Adds a pair of links whose far end becomes a port of the bridge."""
    _ip(machine, f"{add_link} {CONTROL_PLANE.network_namespace}")
    _ip(CONTROL_PLANE, f"link set {port} master eth0 up")


def _configure(machine: ClusterMachine) -> None:
    _ip(machine, f"address add {machine.address}/24 dev eth0")
    _ip(machine, "link set eth0 up")


def _connect_host() -> None:
    run(
        "ip",
        "link",
        "add",
        _HOST_LINK,
        "type",
        "veth",
        "peer",
        "name",
        "host",
        "netns",
        CONTROL_PLANE.network_namespace,
    )
    _ip(CONTROL_PLANE, "link set host master eth0 up")
    run("ip", "address", "add", f"{HOST_ADDRESS}/24", "dev", _HOST_LINK)
    run("ip", "link", "set", _HOST_LINK, "up")


def _ip(machine: ClusterMachine, arguments: str) -> None:
    run("ip", "-netns", machine.network_namespace, *arguments.split())
