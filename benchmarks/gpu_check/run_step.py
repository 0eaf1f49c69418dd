"""Runs one step of the check, in its own process. The arguments are those of `main`."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.report import Report


def main(step: str, device: str, directory: str, deadline: str, shared_memory: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    check = Check(device, Report(Path(directory), step, float(deadline)), Path(shared_memory))
    asyncio.run(import_module(f"benchmarks.gpu_check.steps.{step}").run(check))


if __name__ == "__main__":
    main(*sys.argv[1:])
