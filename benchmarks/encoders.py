#!/usr/bin/env python3
"""Measures the encoder of a model with 1, 8 and 32 media in flight: media/s, and CPU time for each medium. The numbers
in flight take turns in one run. To compare two versions of Cornserve, run it alternately in two checkouts.

    benchmarks/encoders.py MODEL --modality image --size 336
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.media import random_audio, random_image
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.running import running
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.vllm import settings
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import Media

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine


@dataclass(frozen=True, slots=True)
class EncoderFigures:
    """The medians of all rounds."""

    in_flight: int
    media_per_second: float
    cpu_ms: float
    """CPU time of all threads for each medium."""


def main() -> None:
    arguments = _arguments()
    load_seconds, figures = asyncio.run(_measure(arguments))
    machine = MachineInfo.current()
    if arguments.json:
        print(
            json.dumps(
                {"machine": asdict(machine), "load_cpu_seconds": load_seconds, "figures": [*map(asdict, figures)]}
            )
        )
        return
    table = create_table((), ("in flight", "media/s", "CPU ms"))
    for row in figures:
        table.add_row(str(row.in_flight), f"{row.media_per_second:.1f}", f"{row.cpu_ms:.1f}")
    print_report(machine, f"load: {load_seconds:.1f} s of CPU time, with imports", table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=lambda path: Path(path).resolve(), help="the model directory")
    parser.add_argument("--modality", choices=["image", "audio"], default="image")
    parser.add_argument("--size", type=int, default=336, help="pixels of each side of an image, or seconds of audio")
    parser.add_argument("--media", type=int, default=64, help="media of each number in flight, for each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.media = 1, 4
    return arguments


async def _measure(arguments: argparse.Namespace) -> tuple[float, list[EncoderFigures]]:
    started = time.process_time()
    settings.prepare_environment()  # vLLM logs to the standard error.
    from cornserve_executors.encoder.engine import EncoderEngine

    task = EncoderTask(model_id=str(arguments.model), modality=arguments.modality)
    engine = EncoderEngine.load(task, EncoderStats(arguments.modality))
    try:
        async with running(engine):
            await engine.warm_up()
            load_seconds = time.process_time() - started
            rates, times = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
            for number in range(arguments.rounds):
                for in_flight in (1, 8, 32):
                    seeds = range(number * arguments.media, (number + 1) * arguments.media)
                    media = [_medium(arguments.modality, arguments.size, seed) for seed in seeds]
                    wall, cpu = time.perf_counter(), time.process_time()
                    await _encode_all(engine, media, in_flight)
                    rates[in_flight].append(len(media) / (time.perf_counter() - wall))
                    times[in_flight].append(1000 * (time.process_time() - cpu) / len(media))
    finally:
        engine.shutdown()
    return load_seconds, [EncoderFigures(count, median(rates[count]), median(times[count])) for count in rates]


def _medium(modality: str, size: int, seed: int) -> Media:
    return random_image(seed, size) if modality == "image" else random_audio(seed, size)


async def _encode_all(engine: EncoderEngine, media: Sequence[Media], in_flight: int) -> None:
    remaining = iter(enumerate(media))

    async def encode() -> None:
        for number, medium in remaining:
            prepared = await engine.prepare(medium, str(number))
            async with engine.encoded(medium, prepared, str(number)):
                pass

    await asyncio.gather(*(encode() for _ in range(in_flight)))


if __name__ == "__main__":
    main()
