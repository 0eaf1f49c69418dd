"""Runs `ucx_perftest`, the benchmark of UCX, which its wheels contain, between two hosts or on one."""

from __future__ import annotations

import csv
import os
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from benchmarks.harness.transport.namespaces import NetworkHost

PORT = 13337
START_SECONDS = 60.0
MIB = 1 << 20


def tagged_gb_per_s(
    nbytes: int, count: int, sender: NetworkHost, receiver: NetworkHost, wait: Literal["poll", "sleep"]
) -> float | None:
    """Returns the bandwidth of tagged messages, or None if the program is not installed.

    The messages pass through shared memory on one host, and over TCP between two. UCX would also use shared memory
    between network namespaces, which share the machine's processes.

    Args:
        wait: how both processes wait for data. `poll` keeps two cores busy.
    """
    package = find_spec("libucx")
    if package is None or package.origin is None:
        return None
    directory = Path(package.origin).parent
    program = str(directory / "bin/ucx_perftest")
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(directory / "lib"),
        "UCX_TLS": "self,sm" if sender is receiver else "tcp",
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }
    options = (*("-t", "tag_bw"), *("-s", str(nbytes)), *("-n", str(count)), *("-w", "2"), "-f", "-v", "-E", wait)
    command = [*receiver.prefix, program, "-p", str(PORT), "-E", wait]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as server:
        try:
            _wait_until_listening(receiver)
            client = [*sender.prefix, program, receiver.address, "-p", str(PORT), *options]
            output = subprocess.run(client, check=True, capture_output=True, text=True, env=environment)
        finally:
            server.kill()
    return _bandwidth(output.stdout)


def _bandwidth(output: str) -> float:
    (row,) = csv.DictReader(output.splitlines())
    return round(float(row["overall_bw"]) * MIB / 1e9, 2)


def _wait_until_listening(host: NetworkHost) -> None:
    """Asks the kernel, because the server accepts only one connection."""
    deadline = time.monotonic() + START_SECONDS
    while f":{PORT}" not in _run(*host.prefix, "ss", "--tcp", "--listening", "--numeric", "--no-header"):
        if time.monotonic() > deadline:
            raise TimeoutError("ucx_perftest does not listen")
        time.sleep(0.05)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
