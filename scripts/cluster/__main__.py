"""The command line of the cluster for tests: `python -m scripts.cluster COMMAND`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from scripts.cluster import cluster
from scripts.cluster.images import load_image
from scripts.cluster.machines import CONTROL_PLANE, KUBECONFIG, ClusterMachine, existing_nodes, node
from scripts.cluster.programs import LINKS, ProgramMissingError
from scripts.cluster.shell import LocalClusterError

CANNOT_RUN: Final = 3
"""The exit status of `check` on a machine that cannot run the cluster."""


def main(arguments: list[str]) -> None:
    try:
        _run(_parser().parse_args(arguments))
    except (LocalClusterError, ProgramMissingError) as error:
        sys.exit(f"cluster: {error}")


def _run(arguments: argparse.Namespace) -> None:
    match arguments.command:
        case "check":
            _check()
        case "up":
            cluster.up([node(index + 1) for index in range(arguments.nodes)])
            print(f"The cluster is up. Use it:\n  export KUBECONFIG={KUBECONFIG} PATH={LINKS}:$PATH")
        case "down":
            cluster.down()
        case "load":
            for archive in arguments.archives:
                for loaded_node in existing_nodes():
                    load_image(loaded_node, archive)
        case "gpus":
            for gpu_node in existing_nodes():
                cluster.advertise_gpus(gpu_node, arguments.count)
        case "stop":
            cluster.stop_process(_machine(arguments.machine), arguments.process)
        case "start":
            cluster.start_process(_machine(arguments.machine), arguments.process)
        case "shell":
            command = cluster.enter(_machine(arguments.machine), arguments.program or ["bash"])
            environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG), "PATH": f"{LINKS}:{os.environ['PATH']}"}
            sys.exit(subprocess.run(command, env=environment, check=False).returncode)


def _check() -> None:
    try:
        cluster.check()
    except LocalClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        sys.exit(CANNOT_RUN)


def _machine(name: str) -> ClusterMachine:
    machines = {machine.name: machine for machine in (CONTROL_PLANE, *existing_nodes())}
    if name not in machines:
        raise LocalClusterError(f"unknown machine {name!r}. Machines: {', '.join(machines)}")
    return machines[name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scripts.cluster", description="A Kubernetes cluster for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help=f"exits with status {CANNOT_RUN} if this machine cannot run the cluster")
    command = commands.add_parser("up", help="starts the cluster")
    command.add_argument("--nodes", type=int, default=2)
    commands.add_parser("down", help="stops the cluster; loaded images stay for the next one")
    command = commands.add_parser("load", help="loads images into all nodes")
    command.add_argument("archives", type=Path, nargs="+", metavar="OCI_ARCHIVE")
    command = commands.add_parser("gpus", help="makes each node offer GPUs that are not there")
    command.add_argument("count", type=int)
    for name, help in (("stop", "kills a process, which stays away"), ("start", "starts a stopped process")):
        command = commands.add_parser(name, help=help)
        command.add_argument("machine")
        command.add_argument("process")
    command = commands.add_parser("shell", help="runs a program in the namespaces of a machine (default: bash)")
    command.add_argument("machine")
    command.add_argument("program", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
