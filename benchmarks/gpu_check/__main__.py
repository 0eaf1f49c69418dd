"""Runs the steps of the check, each in its own process, and writes their figures.

`scripts/gpu_check` calls this module, and describes its options.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu_check.report import TABLES, Report, start_files
from benchmarks.gpu_check.versions import version_rows

START_SECONDS = 5
"""A step starts only if more time is left: it imports torch first."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    seconds: float
    """Its share of the time, on a GPU. A step that needs less leaves the rest to the following ones."""


STEPS = (Step("tensors", 60), Step("denoiser", 150), Step("talker", 110))
"""The steps, ordered by their value."""

RUN_SECONDS = 400
"""The default limit. Seven minutes include the unpacking of the archive."""

TINY_RUN_SECONDS = 600
"""The limit on a CPU, which only ends a step that hangs: tiny dimensions take about a minute of CPU time."""

EPILOG = """\
scripts/gpu_check pack [FILE] packs this checkout, and the packages that the machine with the GPU lacks, into one
archive (gpu-check.tar.gz). That machine needs Python 3.12, torch, transformers, grpcio, protobuf and numpy, 1.1 GB
in /dev/shm, and no network:

    tar xf gpu-check.tar.gz && cornserve/scripts/gpu_check

PYTHON=/path/to/python selects the interpreter with these packages (python3).
"""


def main() -> int:
    started = time.monotonic()
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, signal.default_int_handler)
    try:
        return _check(_arguments(), started)
    except OSError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gpu_check: interrupted", file=sys.stderr)
        return 130


def _check(arguments: argparse.Namespace, started: float) -> int:
    directory: Path = arguments.output
    start_files(directory)
    device = "cpu" if arguments.cpu else "cuda"
    deadline = started + (arguments.seconds or (TINY_RUN_SECONDS if arguments.cpu else RUN_SECONDS))
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
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check",
        description="Measures tensors, image models and talkers on one NVIDIA GPU, within seven minutes.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("steps", nargs="*", help=f"the steps to run: {', '.join(step.name for step in STEPS)} (all)")
    parser.add_argument("--cpu", action="store_true", help="run in tiny dimensions on the CPU")
    parser.add_argument(
        "--seconds", type=_positive, help=f"the limit for all steps ({RUN_SECONDS}; {TINY_RUN_SECONDS} on a CPU)"
    )
    parser.add_argument("--output", type=Path, default=Path("gpu-check-figures"), help="the directory of the figures")
    arguments = parser.parse_args()
    unknown = set(arguments.steps) - {step.name for step in STEPS}
    if unknown:
        parser.error(f"unknown step {', '.join(sorted(unknown))}: use {', '.join(step.name for step in STEPS)}")
    if not arguments.cpu:
        import torch

        if not torch.cuda.is_available():
            parser.error("no NVIDIA GPU: use --cpu")
    return arguments


def _positive(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return seconds


def _run(step: Step, directory: Path, device: str, deadline: float) -> bool:
    """Runs a step in a separate process, because it may exhaust the memory or break the GPU's context."""
    end = min(deadline, time.monotonic() + step.seconds) if device == "cuda" else deadline
    report = Report(directory, step.name, end)
    if not report.can_start("all cases", START_SECONDS):
        return False
    started = time.monotonic()
    # A case that has begun may end a little later. The limit only ends steps that hang.
    timeout = min(end + 15, deadline + 10) - started
    with TemporaryDirectory(dir="/dev/shm", prefix="cornserve-gpu-check-", ignore_cleanup_errors=True) as shared_memory:
        command = [sys.executable, "-m", "benchmarks.gpu_check.run_step"]
        status = _run_process([*command, step.name, device, str(directory), str(end), shared_memory], device, timeout)
    if status is None:
        report.skip("further cases", f"the step did not end within {timeout:.0f} s")
        return False
    if status:
        report.skip("further cases", f"the process of the step ended with status {status}: see its error above")
        return False
    report.add("whole step", seconds=time.monotonic() - started)
    return True


def _run_process(command: Sequence[str], device: str, timeout: float) -> int | None:
    """Returns the status of a process, or None after the timeout. Ends it with all processes that it has started."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else None
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
