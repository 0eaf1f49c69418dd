"""Starts and stops the cluster: etcd, API server, controllers, DNS and nodes as processes of this machine."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from scripts.cluster.control_plane import ControlPlaneFiles
from scripts.cluster.host import create_cgroups, delete_cgroups, prepare_host, uses_cgroups_v2
from scripts.cluster.images import busybox_image, load_image, remove_containers
from scripts.cluster.machines import (
    CONTROL_PLANE,
    KEPT_IMAGES,
    KUBECONFIG,
    STATE,
    ClusterMachine,
    ClusterNode,
    existing_nodes,
)
from scripts.cluster.network import check_network_is_free, create_network, delete_network
from scripts.cluster.node_files import write_node
from scripts.cluster.programs import COREDNS, HELM, KUBE, ROOT, link, program
from scripts.cluster.shell import LocalClusterError, run, succeeds, wait_until

_FILES: Final = ControlPlaneFiles(CONTROL_PLANE.directory, CONTROL_PLANE.address, 6443)
_API_SERVER_OPTIONS: Final = (
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-preferred-address-types=InternalIP",
)
_COREFILE: Final = f"""\
cluster.local in-addr.arpa ip6.arpa {{
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {_FILES.kubeconfig}
    }}
    cache 5
}}
"""


def check() -> None:
    """Checks that the cluster is known to run on a machine like this one, and installs Debian packages.

    Raises:
        LocalClusterError: This machine cannot run the cluster.
    """
    prepare_host()
    if uses_cgroups_v2():
        raise LocalClusterError("the cluster is not tested with control groups of version 2.")
    if not is_up():
        check_network_is_free()


def up(nodes: list[ClusterNode]) -> None:
    """Starts the cluster unless it is up, and waits until its nodes are ready. Builds and installs what is missing.

    Raises:
        LocalClusterError: This machine cannot run the cluster, or the start failed.
    """
    prepare_host()
    for build in (KUBE, COREDNS, HELM):
        build.build()
        link(build)
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_up():
            down()
            _start_cluster(nodes)
    KUBECONFIG.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_FILES.kubeconfig, KUBECONFIG)


def _start_cluster(nodes: list[ClusterNode]) -> None:
    create_network(nodes)
    _start_control_plane(nodes)
    for node in nodes:
        _start_node(node)
    names = [f"node/{node.name}" for node in nodes]
    wait_until(lambda: succeeds(*_kubectl("get", *names)), "the registration of the nodes")
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", *names)
    kubectl("wait", "--for=create", "--timeout=60s", "serviceaccount/default")  # pods of the namespace need it


def down() -> None:
    """Stops the cluster and removes everything but the images. Does nothing if it does not run."""
    nodes = existing_nodes()
    for machine in (CONTROL_PLANE, *nodes):
        _kill(machine)
    delete_network()
    for node in nodes:
        wait_until(partial(delete_cgroups, node), f"the end of all processes of {node.name}")
    for machine in (CONTROL_PLANE, *nodes):
        shutil.rmtree(machine.directory, ignore_errors=True)
    KUBECONFIG.unlink(missing_ok=True)


def is_up() -> bool:
    return _FILES.kubeconfig.exists() and succeeds(*_kubectl("get", "--raw=/readyz"))


def kubectl(*arguments: str) -> str:
    """Runs kubectl as the administrator and returns its output. Raises `LocalClusterError`."""
    return run(*_kubectl(*arguments))


def _kubectl(*arguments: str) -> tuple[str | Path, ...]:
    return (program("kubectl"), f"--kubeconfig={_FILES.kubeconfig}", *arguments)


def stop_process(machine: ClusterMachine, name: str) -> None:
    """Kills a process of a machine, e.g. `kubelet`; it stays away until `start_process`.

    The controller manager stops with the API server: one that keeps running can be a minute behind when the server is
    back, and Services then lead to pods that have ended.
    """
    for file in _stop_files(machine, name):
        file.touch()


def start_process(machine: ClusterMachine, name: str) -> None:
    for file in _stop_files(machine, name):
        file.unlink(missing_ok=True)


def _stop_files(machine: ClusterMachine, name: str) -> list[Path]:
    names = json.loads((machine.directory / "machine.json").read_text())["processes"]
    if name not in names:
        raise LocalClusterError(f"{machine.name} has no process {name!r}. It has: {', '.join(names)}")
    together = (name, "kube-controller-manager") if name == "kube-apiserver" else (name,)
    return [machine.directory / f"{each}.stopped" for each in together]


def advertise_gpus(node: ClusterNode, count: int) -> None:
    """Makes a node offer GPUs that are not there: pods that request them are scheduled and run."""
    resource = {"nvidia.com/gpu": str(count)}
    patch = json.dumps({"status": {"capacity": resource, "allocatable": resource}})
    kubectl("patch", f"node/{node.name}", "--subresource=status", "--type=merge", f"--patch={patch}")
    kubectl("label", f"node/{node.name}", "--overwrite", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3")


def enter(machine: ClusterMachine, command: list[str]) -> list[str]:
    """Returns a command that runs another one in the namespaces of a machine."""
    return ["nsenter", f"--target={_supervisor_pid(machine)}", "--net", "--pid", "--mount", *command]


def machine_root(machine: ClusterMachine) -> Path:
    """Returns the root of the file system of a machine, as a path of this machine."""
    return Path(f"/proc/{_supervisor_pid(machine)}/root")


def _start_control_plane(nodes: list[ClusterNode]) -> None:
    directory = CONTROL_PLANE.directory
    directory.mkdir(parents=True)
    _FILES.write({"system:kube-proxy": "", **{f"system:node:{node.name}": "system:nodes" for node in nodes}})
    (directory / "Corefile").write_text(_COREFILE)
    processes = {
        "etcd": _FILES.etcd(),
        "kube-apiserver": _FILES.api_server(*_API_SERVER_OPTIONS),
        "kube-controller-manager": _FILES.controller_manager(),
        "kube-scheduler": _FILES.scheduler(),
        "coredns": [str(program("coredns")), "-conf=Corefile"],
    }
    (directory / "machine.json").write_text(json.dumps({"mounts": [], "processes": processes}, indent=2))
    _start(CONTROL_PLANE)
    wait_until(is_up, "the start of the API server")


def _start_node(node: ClusterNode) -> None:
    images = KEPT_IMAGES / node.name
    images.mkdir(parents=True, exist_ok=True)
    write_node(node, str(images), _FILES)
    create_cgroups(node)
    stop_process(node, "kubelet")
    _start(node)
    wait_until(lambda: succeeds("ctr", "--address", node.containerd_socket, "version"), f"the start of {node.name}")
    remove_containers(node)
    load_image(node, busybox_image())
    start_process(node, "kubelet")


def _start(machine: ClusterMachine) -> None:
    """Starts the supervisor of a machine in its namespaces. It outlives this process."""
    namespaces = ["nsenter", f"--net=/run/netns/{machine.network_namespace}", "unshare", "--pid", "--mount"]
    supervisor = [sys.executable, "-m", "scripts.cluster.supervisor", str(machine.directory)]
    with (machine.directory / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(
            [*namespaces, "--mount-proc", "--propagation=private", "--fork", "--kill-child", *supervisor],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (machine.directory / "pid").write_text(str(process.pid))


def _kill(machine: ClusterMachine) -> None:
    """Kills all processes of a machine: the kernel does so when the first process of a PID namespace is killed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(_supervisor_pid(machine), signal.SIGKILL)


def _supervisor_pid(machine: ClusterMachine) -> int:
    """Returns the PID of the supervisor, a child of `unshare`, whose PID is in the file."""
    parent = int((machine.directory / "pid").read_text())
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if str(machine.directory) in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
            return int(child)
    raise ProcessLookupError(f"{machine.name} does not run")
