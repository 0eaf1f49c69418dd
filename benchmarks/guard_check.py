#!/usr/bin/env python3
"""Checks `guard.py`: it must find a regression of 20 % in each figure, and pass for the unchanged tree under load.

Each run with a regression measures one group of figures while `harness/regressions` makes them worse. The runs of the
unchanged tree measure all groups. Takes an hour and a half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.guard import GROUPS

REGRESSIONS = Path(__file__).with_name("harness") / "regressions"


def main() -> None:
    options = _options()
    failed = 0
    for group in options.groups:
        for run in range(options.runs):
            missed = missed_rows(group)
            failed += bool(missed)
            _print(f"regression of {group}, run {run + 1}", f"missed {', '.join(missed)}" if missed else "found")
    with load(options.load):
        for run in range(options.unchanged):
            started = time.monotonic()
            worse = run_guard(options.groups)["worse"]
            failed += bool(worse)
            result = f"failed: {', '.join(worse)}" if worse else "passed"
            _print(f"unchanged, run {run + 1}", f"{result}, {time.monotonic() - started:.0f} s")
    sys.exit(failed > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=[*GROUPS], help="by default, all")
    parser.add_argument("--runs", type=int, default=5, help="runs with a regression of each group (default: 5)")
    parser.add_argument("--unchanged", type=int, default=10, help="runs of the unchanged tree (default: 10)")
    parser.add_argument("--load", type=int, default=2, help="busy processes during these (default: 2)")
    return parser.parse_args()


def missed_rows(group: str) -> list[str]:
    """Returns the figures of a group with a regression that the guard does not find worse."""
    path = os.pathsep.join(filter(None, (str(REGRESSIONS), os.environ.get("PYTHONPATH"))))
    report = run_guard([group], {"PYTHONPATH": path, "CORNSERVE_REGRESSION": group})
    return sorted(report["figures"].keys() - report["worse"])


def run_guard(groups: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    command = [sys.executable, "-m", "benchmarks.guard", "--json", "--groups", *groups]
    done = subprocess.run(command, env=os.environ | (environment or {}), stdout=subprocess.PIPE, check=False)
    if not done.stdout:
        raise RuntimeError(f"the guard has no result: it exited with status {done.returncode}")
    return json.loads(done.stdout)


@contextmanager
def load(number: int) -> Iterator[None]:
    """Runs processes that are always busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _print(what: str, result: str) -> None:
    print(f"{what}: {result}", flush=True)


if __name__ == "__main__":
    main()
