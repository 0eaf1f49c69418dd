"""Compares the heuristic and the search of role mixes with all 35 mixes on 8 GPUs, and prints a table [T Table 3].

python -m benchmarks.role_mixes
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.harness.planner.role_mixes import TARGETS, WORKLOADS, rank_mixes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000, help="requests of a simulation")
    requests = parser.parse_args().requests
    print("workload         TTFT   TBT    best (requests/s)            heuristic  search  runs of all, of the search")
    ranks = []
    for workload in WORKLOADS:
        for ttft, tbt in TARGETS:
            with TemporaryDirectory() as folder:
                found = rank_mixes(Path(folder), workload, ttft, tbt, requests)
            ranks.append(found)
            print(
                f"{found.workload:<15}  {ttft:<5g}  {tbt:<5g}  {found.best:7.4g}  {found.best_mix:<20}"
                f"{found.heuristic:9}{found.search:8}{found.all_runs:8}{found.search_runs:8}",
                flush=True,
            )
    runs = sum(found.search_runs for found in ranks) / sum(found.all_runs for found in ranks)
    print(
        f"mean rank of the heuristic {fmean(found.heuristic for found in ranks):.3g}, of the search "
        f"{fmean(found.search for found in ranks):.3g}; the search runs {runs:.0%} of the simulations"
    )


if __name__ == "__main__":
    main()
