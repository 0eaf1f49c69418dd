"""Ends the processes of a worker of pytest-xdist that has crashed. They would slow the tests of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def kill_processes_with(directory: Path) -> None:
    """Kills the processes that have a path in the directory in their arguments, and their descendants."""
    for process in list(_processes_with(directory)):
        with suppress(psutil.NoSuchProcess):
            for descendant in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    descendant.kill()
            process.kill()


def _processes_with(directory: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if f"{directory}/" in " ".join(process.cmdline()):
                yield process
