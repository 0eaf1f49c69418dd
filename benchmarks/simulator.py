#!/usr/bin/env python3
"""Measures the simulator: CPU time per request and memory, with a model of three stages on 64 to 10,000 GPUs.

The bar is a million requests on 10,000 GPUs within 5 minutes and 2 GB on one core. It runs with
`--requests 1000000 --gpus 10000`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.planner.large_simulation import large_simulation
from benchmarks.harness.report import create_table, print_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000, help="number of requests (default: %(default)s)")
    parser.add_argument("--gpus", type=int, nargs="+", default=[64, 1024, 10_000], help="GPUs (default: %(default)s)")
    parser.add_argument("--routing", default="least-loaded", help="routing policy (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="run a short version, as a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    machine = MachineInfo.current()
    requests, sizes = (500, [64, 256]) if options.quick else (options.requests, options.gpus)
    rows = [large_simulation(requests, gpus, options.routing) for gpus in sizes]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
        return
    numbers = ("GPUs", "replicas", "simulated s", "CPU s", "wall s", "µs per request", "peak MiB", "p99 s")
    table = create_table(("requests",), numbers, "Simulations")
    for row in rows:
        table.add_row(
            *(f"{row.requests:,}", f"{row.gpus:,}", f"{row.replicas:,}", f"{row.simulated_seconds:.0f}"),
            *(f"{row.cpu_seconds:.1f}", f"{row.wall_seconds:.1f}", f"{row.microseconds:.0f}"),
            *(f"{row.peak_mib:.0f}", f"{row.p99_seconds:.2f}"),
        )
    print_report(machine, f"routing policy: {options.routing}", table)


if __name__ == "__main__":
    main()
