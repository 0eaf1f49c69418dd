"""Condenses the Azure LMM trace's requests per minute into the file that the planner ships.

python scripts/planner_data/azure.py per_minute.csv

per_minute.csv: `paper/data/azure_lmm_trace_2024_per_minute.csv` of https://github.com/Azure/realtimevideogen, from the
Azure LMM inference trace of https://github.com/Azure/AzurePublicDataset (CC-BY 4.0); columns minute, timestamp,
requests.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

OUT = Path(__file__).parents[2] / "planner/cornserve_planner/workload/data/azure-lmm-2024.json"
A_LINE = 60


def main(source: Path) -> None:
    with source.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    if [int(row["minute"]) for row in rows] != list(range(len(rows))):
        raise SystemExit("minutes are missing or out of order")
    counts = [int(row["requests"]) for row in rows]
    header = {
        "format": "cornserve-planner/arrivals",
        "version": 1,
        "source": "Azure LMM inference trace, October 2024 (https://github.com/Azure/AzurePublicDataset; Qiu et al., "
        "ModServe, SoCC 2025), as requests per minute (https://github.com/Azure/realtimevideogen), condensed by "
        "scripts/planner_data/azure.py",
        "licence": "CC-BY-4.0",
        "start": rows[0]["timestamp"],
        "step_seconds": 60,
    }
    hours = [counts[index : index + A_LINE] for index in range(0, len(counts), A_LINE)]
    lines = ",\n".join(",".join(map(str, hour)) for hour in hours)
    OUT.write_text(json.dumps(header, indent=1)[:-2] + ',\n "counts": [\n' + lines + "\n]}\n")
    print(f"{OUT}: {sum(counts)} requests in {len(counts)} minutes, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
