"""Prints the line and branch coverage of each package: `python -m scripts.package_coverage [--before FILE]`.

Reads the measurements of `make coverage`, and combines them into `.cache/coverage/data`. With `--before`, a copy of
that file from an earlier run, it also lists the lines that only the earlier run reached.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from tempfile import NamedTemporaryFile
from typing import Any, Final

from coverage import Coverage

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT / ".cache/coverage/data"
CONFIGURATION: Final = ROOT / "pyproject.toml"


@dataclass
class PackageCoverage:
    lines: int = 0
    covered_lines: int = 0
    branches: int = 0
    covered_branches: int = 0

    def add(self, other: PackageCoverage) -> None:
        self.lines += other.lines
        self.covered_lines += other.covered_lines
        self.branches += other.branches
        self.covered_branches += other.covered_branches


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.package_coverage", description=__doc__)
    parser.add_argument("--before", type=Path, metavar="FILE", help="list the lines that only this data contains")
    options = parser.parse_args()
    files = measured_files(DATA)
    for row in table(by_package(files)):
        print(row)
    if options.before:
        for file, lines in lost_lines(measured_files(options.before), files).items():
            print(f"{file}: only reached before: {', '.join(map(str, lines))}")


def measured_files(data: Path) -> dict[str, Any]:
    """Returns the results of coverage.py by file. Combines the data of all processes unless they are combined."""
    coverage = Coverage(data_file=data, config_file=str(CONFIGURATION))
    if any(data.parent.glob(f"{data.name}.*")):
        coverage.combine()
    coverage.load()
    with NamedTemporaryFile("r") as report:
        coverage.json_report(outfile=report.name)
        files: dict[str, Any] = json.load(report)["files"]
    return files


def by_package(files: Mapping[str, Any]) -> dict[str, PackageCoverage]:
    """Returns the coverage of each folder with Python files."""
    packages: defaultdict[str, PackageCoverage] = defaultdict(PackageCoverage)
    for name, file in files.items():
        found = file["summary"]
        packages[str(PurePath(name).parent)].add(
            PackageCoverage(
                found["num_statements"], found["covered_lines"], found["num_branches"], found["covered_branches"]
            )
        )
    return dict(sorted(packages.items()))


def table(packages: Mapping[str, PackageCoverage]) -> Iterable[str]:
    total = PackageCoverage()
    yield f"{'package':50}{'lines':>8}{'covered':>9}{'branches':>10}{'covered':>9}"
    for name, package in packages.items():
        total.add(package)
        yield _row(name, package)
    yield _row("all", total)


def lost_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[int]]:
    """Returns the lines that were reached before, and that exist and are not reached now."""
    lost = {}
    for name, file in after.items():
        reached = before.get(name, {"executed_lines": []})["executed_lines"]
        if lines := sorted(set(reached) & set(file["missing_lines"])):
            lost[name] = lines
    return lost


def _row(name: str, package: PackageCoverage) -> str:
    lines, branches = (
        f"{100 * covered / total:8.1f}%" if total else f"{'–':>9}"
        for covered, total in (
            (package.covered_lines, package.lines),
            (package.covered_branches, package.branches),
        )
    )
    return f"{name:50}{package.lines:8}{lines}{package.branches:10}{branches}"


if __name__ == "__main__":
    main()
