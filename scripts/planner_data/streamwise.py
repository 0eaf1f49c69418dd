"""Condenses StreamWise's measurements of FLUX and Wan 2.1 into profiles, for the reproduction's check of predictions.

python scripts/planner_data/streamwise.py DIRECTORY

DIRECTORY: `paper/data` of https://github.com/Azure/realtimevideogen (MIT; Copyright (c) Microsoft Corporation). The
script reads flux.csv, wan-a100.csv, wan-h100.csv, wan-h200.csv and wan-batching.csv. It replaces repeated runs with
their median, and skips warm-up runs, runs that did not report all steps, and rows that are not measurements.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cornserve_planner.profiles.profile import BatchLatency, ModelProfile, OptionProfile

OUT = Path(__file__).parents[2] / "benchmarks/reproduction/latencies"
GPUS = {"NVIDIA A100-SXM4-80GB": "A100-80GB", "NVIDIA H100 80GB HBM3": "H100", "NVIDIA H200": "H200"}
SOURCE = "StreamWise {} (https://github.com/Azure/realtimevideogen, MIT), median of the runs"
NOTE = (
    "Measured by StreamWise. Several GPUs share a request's sequence (Ulysses), so the values do not apply to tensor "
    "parallelism."
)
STEPS = {"flux": 20, "wan": 10}

Row = dict[str, str]
Curves = dict[tuple[str, str, int, str, str], dict[int, list[float]]]
"""Seconds of the runs by batch size, for each option, GPU type, number of GPUs, requests and file."""


def main(directory: Path) -> None:
    flux: Curves = defaultdict(lambda: defaultdict(list))
    for row in _rows(directory / "flux.csv"):
        complete = int(row["steps"]) == int(row["num_steps"]) == STEPS["flux"]
        if complete and row["gpu_model"] in GPUS and int(row["width"]) <= 1920:
            requests = f"{row['width']} × {row['height']}, {row['steps']} steps"
            key = (GPUS[row["gpu_model"]], int(row["world_size"]), requests, "flux.csv")
            flux["image_generator", *key][1].append(float(row["total_time"]))
            flux["dit", *key][1].append(float(row["total_steps_time"]))
    _write("flux.1-dev", flux)

    wan: Curves = defaultdict(lambda: defaultdict(list))
    for file, gpu in (("wan-a100.csv", "A100-80GB"), ("wan-h100.csv", "H100"), ("wan-h200.csv", "H200")):
        for row in _rows(directory / file):
            _add_wan_run(wan, row, gpu, file, 1)
    for row in _rows(directory / "wan-batching.csv"):
        _add_wan_run(wan, row, GPUS[row["hw"]], "wan-batching.csv", int(row["batch_size"]))
    _write("wan2.1-i2v-14b", wan)


def _add_wan_run(curves: Curves, row: Row, gpu: str, file: str, batch: int) -> None:
    if int(row["sampling_steps"]) == STEPS["wan"] and int(row["frames"]) in (21, 41, 81):
        requests = f"{row['width']} × {row['height']}, {row['frames']} frames, {row['sampling_steps']} steps"
        key = (gpu, int(row["world_size"]), requests, file)
        curves["video_generator", *key][batch].append(float(row["total"]))
        curves["dit", *key][batch].append(float(row["dit"]))


def _rows(path: Path) -> Iterator[Row]:
    with path.open() as file:
        for row in csv.DictReader(file):
            run = row.get("#run_num") or row.get("#run_id") or ""
            if run.isdigit() and all(row.values()):
                yield row


def _write(model: str, curves: Curves) -> None:
    options: dict[tuple[str, str, int], list[BatchLatency]] = {}
    for (option, gpu, gpus, requests, file), runs in sorted(curves.items()):
        curve = BatchLatency(
            batch=tuple(sorted(runs)),
            seconds=tuple(round(statistics.median(runs[batch]), 3) for batch in sorted(runs)),
            requests=requests,
            tag="published",
            source=SOURCE.format(file),
        )
        options.setdefault((option, gpu, gpus), []).append(curve)
    profile = ModelProfile(
        model=model,
        note=NOTE,
        options=tuple(
            OptionProfile(option=option, gpu=gpu, gpus=gpus, latency=tuple(found))
            for (option, gpu, gpus), found in options.items()
        ),
    )
    path = OUT / f"{model}.json"
    profile.write(path)
    print(f"{path}: {len(profile.options)} entries, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
