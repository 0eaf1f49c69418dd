"""An instance in its own home that a benchmark controls through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from cornserve.client import Client

DRAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class SlotInstance:
    """An instance with slots of one core each.

    Args:
        directory: created at the start. It must not exist.
    """

    directory: Path
    slots: int

    @contextmanager
    def started(self) -> Iterator[Client]:
        self.directory.mkdir(parents=True)
        url = json.loads(self.cornserve("up", "--detach", "--port", "0", "--slots", f"slot={self.slots}", "--json"))
        try:
            with Client(url["url"]) as client:
                yield client
        finally:
            self.cornserve("down")

    def cornserve(self, *arguments: str) -> str:
        """Runs a command and returns its output. Raises RuntimeError if it fails."""
        environment = os.environ | {"CORNSERVE_HOME": str(self.directory / "home")}
        command = [sys.executable, "-m", "cornserve.cli", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"cornserve {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def wait_for_executors(self, number: int) -> int:
        """Returns the number of executor processes as soon as `number` run, or after the time in which others drain."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while (running := self._count_executors()) != number and time.monotonic() < deadline:
            time.sleep(0.1)
        return running

    def _count_executors(self) -> int:
        directory = str(self.directory)
        commands = (process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"]))
        return sum(
            "cornserve_executors.base" in command and any(argument.startswith(directory) for argument in command)
            for command in commands
        )
