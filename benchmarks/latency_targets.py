#!/usr/bin/env python3
"""Measures what latency targets cost and gain: CPU time of the gateway, and texts next to requests with 16 images.

The gateway serves chats of an app with an echo executor, in turns without targets and with targets for the first token,
between tokens and for the whole response. With --image-model, a multimodal model serves short texts at random times
while requests with 16 images are always in flight, in turns without and with a target for the first token, by which
requests are due. *Noise* is the difference between rounds without targets.

    benchmarks/latency_targets.py
    benchmarks/latency_targets.py --image-model ~/models/tiny-qwen25vl
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness.latency_targets import TextRow, measure_cpu, measure_texts
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.processes import CoreAssignment
from benchmarks.harness.report import create_table, print_report


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    cores = CoreAssignment() if options.unpinned else CoreAssignment.split()
    cpu = [*measure_cpu(cores, options.concurrency, options.rounds, options.seconds)]
    texts = [*_texts(options)]
    if options.json:
        rows = {"cpu": [asdict(row) for row in cpu], "texts": [asdict(row) for row in texts]}
        print(json.dumps({"machine": asdict(machine), **rows}))
        return
    table = create_table(["chats"], ["in flight", "µs without", "µs with targets", "change", "noise"])
    for row in cpu:
        table.add_row(
            *(row.mode, str(row.concurrency), f"{row.without_us:.0f}", f"{row.with_us:.0f}"),
            *(f"{row.change:+.1%}", f"{row.noise:.1%}"),
        )
    tables = [table]
    if texts:
        table = create_table(["round"], ["texts", "P50 ms", "P99 ms", "P50 with targets", "P99 with targets", "P99"])
        for found in texts:
            table.add_row(
                *(str(found.round), str(found.texts), f"{found.without[0]:.0f}", f"{found.without[1]:.0f}"),
                *(f"{found.with_targets[0]:.0f}", f"{found.with_targets[1]:.0f}", f"{found.change:+.0%}"),
            )
        tables.append(table)
    print_report(machine, "CPU time of the gateway per request; time to the first token of short texts", *tables)


def _texts(options: argparse.Namespace) -> Iterator[TextRow]:
    if options.image_model is not None:
        with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as folder:
            seconds, rounds = (8.0, 1) if options.quick else (40.0, options.rounds)
            yield from measure_texts(Path(folder) / "instance", options.image_model, rounds, seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8, 64], metavar="N", help="chats in flight")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each figure (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each with chats (default: %(default)s)")
    parser.add_argument("--image-model", type=Path, help="directory of a model that reads images")
    parser.add_argument("--unpinned", action="store_true", help="do not reserve a core for the gateway")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    if options.quick:
        options.concurrency, options.rounds, options.seconds = [8], 2, 0.2
    return options


if __name__ == "__main__":
    main()
