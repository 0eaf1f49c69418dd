"""Runs `ucx_perftest`, the benchmark of UCX, which its wheels contain, between two hosts."""

from __future__ import annotations

import csv
import os
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness.transport.namespaces import NetworkHost

PORT = 13337
START_SECONDS = 60.0
MIB = 1 << 20


def tagged_gb_per_s(nbytes: int, count: int, sender: NetworkHost, receiver: NetworkHost) -> float | None:
    """Returns the bandwidth of tagged messages, or None if the program is not installed."""
    package = find_spec("libucx")
    if package is None or package.origin is None:
        return None
    directory = Path(package.origin).parent
    program, environment = str(directory / "bin/ucx_perftest"), {"LD_LIBRARY_PATH": str(directory / "lib")}
    options = (*("-t", "tag_bw"), *("-s", str(nbytes)), *("-n", str(count)), *("-w", "2"), "-f", "-v")
    command = [*receiver.prefix, program, "-p", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | environment) as server:
        try:
            _wait_until_listening(receiver)
            client = [*sender.prefix, program, receiver.address, "-p", str(PORT), *options]
            output = subprocess.run(client, check=True, capture_output=True, text=True, env=os.environ | environment)
        finally:
            server.kill()
    return _bandwidth(output.stdout)


def _bandwidth(output: str) -> float:
    (row,) = csv.DictReader(output.splitlines())
    return float(row["overall_bw"]) * MIB / 1e9


def _wait_until_listening(host: NetworkHost) -> None:
    """Asks the kernel, because the server accepts only one connection."""
    deadline = time.monotonic() + START_SECONDS
    while f":{PORT}" not in _run(*host.prefix, "ss", "--tcp", "--listening", "--numeric", "--no-header"):
        if time.monotonic() > deadline:
            raise TimeoutError("ucx_perftest does not listen")
        time.sleep(0.05)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
