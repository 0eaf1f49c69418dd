"""Runs one step of the check: `python -m benchmarks.gpu_check.run_step STEP DEVICE DIRECTORY DEADLINE`."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.report import Report


def main(step: str, device: str, directory: str, deadline: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    check = Check(device, is_tiny=device == "cpu", report=Report(Path(directory), step, float(deadline)))
    asyncio.run(import_module(f"benchmarks.gpu_check.steps.{step}").run(check))


if __name__ == "__main__":
    main(*sys.argv[1:])
