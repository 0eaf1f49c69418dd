"""Runs `vllm serve` next to an instance."""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.instance import DEPLOY_TIMEOUT_SECONDS, free_port
from benchmarks.harness.processes import running_process


@dataclass(frozen=True, slots=True)
class VllmServer:
    url: str
    process: int
    """The id of the process of the API server, which starts the engine's."""


@contextmanager
def running_vllm(
    model: Path, directory: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[VllmServer]:
    """Runs `vllm serve` with further options until the block ends. Yields the server as soon as it is ready."""
    port, log = free_port(), directory / "vllm.log"
    # The command `vllm` needs a distribution of this name, which builds for CPUs do not have.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running_process([*command, *options], log, environment=os.environ | (environment or {})) as process:
        deadline = time.monotonic() + DEPLOY_TIMEOUT_SECONDS
        while not _responds(f"{url}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vllm serve did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield VllmServer(url, process.pid)


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
