#!/usr/bin/env python3
"""Measures how often the planner's intervals contain the true times of options with several components, and the true
rates of plans, for synthetic executors whose times are additive, overlap or interfere.

`MISFIT` (`cornserve_planner/conversion_fit.py`) was calibrated with the even seeds. The odd seeds judge it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.planner.intervals import KINDS, coverage
from benchmarks.harness.report import create_table, print_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=240, help="models of each kind (default: %(default)s)")
    parser.add_argument("--calibrate", action="store_true", help="use the seeds of the calibration")
    parser.add_argument("--quick", action="store_true", help="run a short version, as a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    cases = 12 if options.quick else options.cases
    seeds = range(0 if options.calibrate else 1, 2 * cases, 2)
    rows = [row for kind in KINDS for row in zip(("times", "rates"), coverage(kind, seeds), strict=True)]
    if options.json:
        print(json.dumps({"rows": [{"of": what, **asdict(row)} for what, row in rows]}))
        return
    table = create_table(("kind", "interval of"), ("intervals", "hold the truth", "median width"), "Intervals")
    for what, row in rows:
        table.add_row(row.kind, what, str(row.count), f"{row.inside:.1%}", f"{row.width:.1%}")
    print_report(MachineInfo.current(), f"{cases} models of each kind", table)


if __name__ == "__main__":
    main()
