"""Faults of the nodes of `make cluster`, which are processes of this machine."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cornserve.kubernetes.resources import JsonObject
from scripts.cluster.cluster import machine_root, start_process, stop_process
from scripts.cluster.machines import ClusterMachine, ClusterNode, existing_nodes
from scripts.cluster.shell import wait_until

CHUNK_BYTES = 1 << 20
FILL_SECONDS = 0.01


def node_of(pod: JsonObject) -> ClusterNode:
    """Returns the node that runs a pod."""
    return next(node for node in existing_nodes() if node.name == pod["spec"]["nodeName"])


@contextmanager
def stopped(machine: ClusterMachine, process: str, port: int) -> Iterator[None]:
    """Kills a process with SIGKILL. It starts again at the end of the block.

    Args:
        port: a port on which it listens.
    """
    try:
        stop_process(machine, process)
        wait_until(lambda: not _listens(machine, port), f"the end of {process}")
        yield
    finally:
        start_process(machine, process)
        wait_until(lambda: _listens(machine, port), f"the start of {process}")


def _listens(machine: ClusterMachine, port: int) -> bool:
    with suppress(OSError), socket.create_connection((machine.address, port), timeout=1):
        return True
    return False


def kill_processes(pod: JsonObject) -> None:
    """Kills all processes of a pod's containers but the first, which ends with them, with SIGKILL."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_of_pod = f"pod{pod['metadata']['uid']}" in (directory / "cgroup").read_text()
            if is_of_pod and b"cornserve" in (directory / "cmdline").read_bytes():
                os.kill(int(directory.name), signal.SIGKILL)


def shared_directory(node: ClusterNode, path: Path) -> Path:
    """Returns the path on this machine of a path on a node."""
    return machine_root(node) / path.relative_to("/")


@contextmanager
def full_memory(path: Path) -> Iterator[None]:
    """Keeps the file systems of a directory of all nodes full: it also takes the space that ended executors free."""
    files = [shared_directory(node, path) / "fill" for node in existing_nodes()]
    ended = threading.Event()

    def keep_full() -> None:
        while not ended.wait(FILL_SECONDS):
            for file in files:
                _fill(file)

    filler = threading.Thread(target=keep_full)
    filler.start()
    try:
        for file in files:
            _fill(file)
        yield
    finally:
        ended.set()
        filler.join()
        for file in files:
            file.unlink(missing_ok=True)


def _fill(file: Path) -> None:
    with file.open("ab", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(bytes(CHUNK_BYTES))
