"""Runs the steps of the check, each in its own process, and writes their figures.

`scripts/gpu_check` calls this module, and describes its options.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu_check.report import TABLES, Report
from benchmarks.gpu_check.versions import version_rows

START_SECONDS = 5
"""A step starts only if more time is left: it imports torch first."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    seconds: float
    """Its share of the time, on a GPU. A step that needs less leaves the rest to the following ones."""


STEPS = (Step("tensors", 60), Step("denoiser", 150), Step("talker", 110), Step("encoder", 80))
"""The steps, ordered by their value."""

RUN_SECONDS = 400
"""The default limit. Seven minutes include the unpacking of the archive."""

TINY_RUN_SECONDS = 600
"""The limit on a CPU, which only ends a step that hangs: tiny dimensions take less than a minute."""


def main() -> int:
    arguments = _arguments()
    directory: Path = arguments.output
    directory.mkdir(parents=True, exist_ok=True)
    device = "cpu" if arguments.cpu else "cuda"
    limit = arguments.seconds or (TINY_RUN_SECONDS if arguments.cpu else RUN_SECONDS)
    deadline = time.monotonic() + limit
    report = Report(directory, "versions", deadline)
    for case, figures in version_rows(device):
        report.add(case, **figures)
    steps = [step for step in STEPS if not arguments.steps or step.name in arguments.steps]
    failed = [step.name for step in steps if not _run(step, directory, device, deadline)]
    print(f"gpu_check: the tables are in {directory / TABLES}")
    if failed:
        print(f"gpu_check: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu_check")
    parser.add_argument("steps", nargs="*", help=f"the steps to run: {', '.join(step.name for step in STEPS)} (all)")
    parser.add_argument("--cpu", action="store_true", help="run in tiny dimensions on the CPU")
    parser.add_argument(
        "--seconds", type=float, help=f"the limit for all steps ({RUN_SECONDS}; {TINY_RUN_SECONDS} on a CPU)"
    )
    parser.add_argument("--output", type=Path, default=Path("gpu-check-figures"), help="the directory of the figures")
    arguments = parser.parse_args()
    unknown = set(arguments.steps) - {step.name for step in STEPS}
    if unknown:
        parser.error(f"unknown step {', '.join(sorted(unknown))}: use {', '.join(step.name for step in STEPS)}")
    return arguments


def _run(step: Step, directory: Path, device: str, deadline: float) -> bool:
    """Runs a step in a separate process, because it may exhaust the memory or break the GPU's context."""
    end = min(deadline, time.monotonic() + step.seconds) if device == "cuda" else deadline
    report = Report(directory, step.name, end)
    if not report.can_start("all cases", START_SECONDS):
        return True
    command = [sys.executable, "-m", "benchmarks.gpu_check.run_step", step.name, device, str(directory), str(end)]
    started = time.monotonic()
    # A case that has begun may end a little later. The limit only ends steps that hang.
    timeout = end - started + step.seconds
    try:
        status = subprocess.run(command, check=False, timeout=timeout).returncode
    except subprocess.TimeoutExpired:
        report.skip("further cases", f"the step did not end within {timeout:.0f} s")
        return False
    if status:
        report.skip("further cases", f"the process of the step ended with status {status}: see its error above")
        return False
    report.add("whole step", seconds=time.monotonic() - started)
    return True


if __name__ == "__main__":
    sys.exit(main())
