"""Checks that a command finds faults: `python -m scripts.inject_faults --seed 1 --paths cornserve/wire -- make test`.

Draws lines of the product at random, changes one expression or statement of a line at a time, runs the command, and
restores the file. A fault is found if the command fails, so the command must pass without faults. `make coverage`
before it limits the draw to lines that tests reach.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from coverage import CoverageData

from scripts.mutations import Mutation, mutations
from scripts.package_coverage import DATA, ROOT

PRODUCT: Final = ("cornserve", "cornserve_demo", "executors", "plan", "planner", "policies", "tasklib")
LOGS: Final = ROOT / ".cache/faults"

_SECONDS: Final = count(int(time.time()) + 1)
"""The times of the changes."""


@dataclass(frozen=True)
class Fault:
    file: Path
    mutation: Mutation

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.mutation.before, self.mutation.after))
        return f"{self.file}:{self.mutation.line}: {before} → {after}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.inject_faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a draw")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--paths", type=Path, nargs="+", default=[Path(name) for name in PRODUCT])
    parser.add_argument("--list", action="store_true", help="only print the faults")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args(arguments)
    if not (options.command or options.list):
        parser.error("the command is missing")
    reached = reached_lines(DATA) if DATA.exists() else None
    print(f"seed {options.seed}, {'all lines' if reached is None else 'lines that tests reach'}")
    faults = draw(options.paths, options.count, random.Random(options.seed), reached)
    if not faults:
        parser.error("the paths contain no line to change")
    if options.list:
        print(*faults, sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # restores the file
    survived = 0
    for number, fault in enumerate(faults, 1):
        found = is_found(fault, options.command, LOGS / f"{options.seed}-{number}.log")
        survived += not found
        print(f"{number:3} {'found   ' if found else 'SURVIVED'} {fault}", flush=True)
    print(f"{len(faults) - survived} of {len(faults)} faults were found; the outputs are in {LOGS}")
    return 1 if survived else 0


def draw(
    paths: Sequence[Path], count: int, generator: random.Random, reached: Mapping[Path, set[int]] | None
) -> list[Fault]:
    """Draws lines, each with the same probability, and one mutation of each."""
    by_line: defaultdict[tuple[Path, int], list[Mutation]] = defaultdict(list)
    for file in _files(paths):
        for mutation in mutations(file.read_text()):
            if reached is None or mutation.line in reached.get(file, ()):
                by_line[file, mutation.line].append(mutation)
    lines = generator.sample(sorted(by_line), min(count, len(by_line)))
    return [Fault(file, generator.choice(by_line[file, line])) for file, line in lines]


def reached_lines(data: Path) -> dict[Path, set[int]]:
    """Returns the lines by file that the tests of `make coverage` have reached."""
    coverage = CoverageData(str(data))
    coverage.read()
    return {Path(file): set(coverage.lines(file) or ()) for file in coverage.measured_files()}


def is_found(fault: Fault, command: Sequence[str], log: Path) -> bool:
    log.parent.mkdir(parents=True, exist_ok=True)
    with injected(fault), log.open("w") as output:
        output.write(f"{fault}\n")
        output.flush()
        return subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode != 0


@contextmanager
def injected(fault: Fault) -> Iterator[None]:
    """Changes the file inside the block.

    Python compiles a file again if its size or the second of its change differs. The change therefore has a second of
    its own, and the restored file has its earlier one.
    """
    source, times, second = fault.file.read_bytes(), fault.file.stat(), next(_SECONDS)
    try:
        fault.file.write_text(fault.mutation.source)
        os.utime(fault.file, (second, second))
        yield
    finally:
        fault.file.write_bytes(source)
        os.utime(fault.file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _files(paths: Sequence[Path]) -> list[Path]:
    files = (file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))
    return sorted({file for file in files if not file.is_relative_to("cornserve/v1")})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
