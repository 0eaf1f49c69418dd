"""Condenses ServeGen's multimodal image clients into the file that the planner ships.

python scripts/planner_data/servegen.py DIRECTORY

DIRECTORY: `data/multimodal/mm-image` of https://github.com/alibaba/ServeGen (Apache License 2.0). It contains
`chunk-N-trace.csv` (one row for every 600 s: start, requests/s, CV, family and its parameters) and
`chunk-N-dataset.json` (for each window of 6 h, the frequencies of the values of each field).

Rates and CVs are rounded to four digits. Fields with up to 32 values are kept. The values of other fields are put in 32
bins, which are finer in the upper tail. The mean of a bin represents it, so that the mean of the field is unchanged and
quantiles move within a bin.
"""

from __future__ import annotations

import ast
import bisect
import csv
import json
import sys
from itertools import accumulate
from pathlib import Path

OUT = Path(__file__).parents[2] / "planner/cornserve_planner/workload/data/servegen-mm-image.json"
FIELDS = {"text_tokens": "text", "image_tokens": "image_tokens", "image_count": "images", "output_tokens": "output"}
KEPT = 32
EDGES = [*(index / 26 for index in range(1, 25)), 0.95, 0.975, 0.99, 0.995, 0.998, 0.999, 0.9995]

Distribution = dict[str, list[float]]


def main(directory: Path) -> None:
    count = len(list(directory.glob("chunk-*-trace.csv")))
    header = {
        "format": "cornserve-planner/clients",
        "version": 1,
        "source": "ServeGen, data/multimodal/mm-image (https://github.com/alibaba/ServeGen), condensed by "
        "scripts/planner_data/servegen.py",
        "licence": "Apache-2.0",
        "step_seconds": 600,
        "window_seconds": 21600,
    }
    lines = ",\n".join(json.dumps(client(directory, number), separators=(",", ":")) for number in range(count))
    OUT.write_text(json.dumps(header, indent=1)[:-2] + ',\n "clients": [\n' + lines + "\n]}\n")
    print(f"{OUT}: {count} clients, {OUT.stat().st_size} bytes")


def client(directory: Path, number: int) -> dict[str, object]:
    with (directory / f"chunk-{number}-trace.csv").open() as file:
        steps = list(csv.reader(file))
    windows = json.loads((directory / f"chunk-{number}-dataset.json").read_text())
    return {
        "name": f"mm-image-{number}",
        "rates": [digits(float(step[1])) for step in steps],
        "cvs": [digits(float(step[2] or 0)) for step in steps],
        "families": "".join({"Gamma": "g", "Weibull": "w", "": "-"}[step[3]] for step in steps),
        "windows": [
            {ours: condense(ast.literal_eval(windows[start][theirs])) for theirs, ours in FIELDS.items()}
            for start in sorted(windows, key=int)
        ],
    }


def condense(chances: dict[int, float]) -> Distribution:
    values: list[float] = [*sorted(chances)]
    total = sum(chances.values())
    weights = [chances[int(value)] / total for value in values]
    if len(values) > KEPT:
        values, weights = binned(values, weights)
    return {"values": values, "weights": [digits(weight) for weight in weights]}


def binned(values: list[float], weights: list[float]) -> tuple[list[float], list[float]]:
    bins: dict[int, list[tuple[float, float]]] = {}
    for value, weight, reached in zip(values, weights, accumulate(weights), strict=True):
        bins.setdefault(bisect.bisect_left(EDGES, reached - weight / 2), []).append((value, weight))
    masses = [sum(weight for _, weight in members) for members in bins.values()]
    mean_sizes = [
        sum(value * weight for value, weight in members) / mass
        for members, mass in zip(bins.values(), masses, strict=True)
    ]
    return [digits(mean) for mean in mean_sizes], masses


def digits(number: float) -> float:
    rounded = float(f"{number:.4g}")
    return int(rounded) if rounded.is_integer() else rounded


if __name__ == "__main__":
    main(Path(sys.argv[1]))
