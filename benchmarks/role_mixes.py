#!/usr/bin/env python3
"""Compares the heuristic and the search of role mixes with all 35 mixes on 8 GPUs [T Table 3].

Each number of requests is simulated at several rates for each mix. Mixes of equal goodput have the same rank.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.planner.role_mixes import TARGETS, WORKLOADS, ImageWorkload, MixRanks, rank_mixes
from benchmarks.harness.report import create_table, print_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="requests of a simulation (default: %(default)s)")
    requests = parser.parse_args().requests
    found = [_ranks(workload, ttft, tbt, requests) for workload in WORKLOADS for ttft, tbt in TARGETS]
    numbers = (
        "TTFT s",
        "TBT ms",
        "requests/s",
        "rank of the heuristic",
        "of the search",
        "simulations of all",
        "search",
    )
    table = create_table(("workload", "best mix"), numbers)
    for each in found:
        table.add_row(
            *(each.workload, each.best_mix, f"{each.ttft:g}", f"{1000 * each.tbt:g}", f"{each.best:.4g}"),
            *map(str, (each.heuristic, each.search, each.all_runs, each.search_runs)),
        )
    runs = sum(each.search_runs for each in found) / sum(each.all_runs for each in found)
    heuristic, search = fmean(each.heuristic for each in found), fmean(each.search for each in found)
    note = (
        f"{requests} requests: the mean rank of the heuristic is {heuristic:.3g}, that of the search {search:.3g}, "
        f"with {runs:.0%} of the simulations"
    )
    print_report(MachineInfo.current(), note, table)


def _ranks(workload: ImageWorkload, ttft: float, tbt: float, requests: int) -> MixRanks:
    with TemporaryDirectory() as folder:
        return rank_mixes(Path(folder), workload, ttft, tbt, requests)


if __name__ == "__main__":
    main()
