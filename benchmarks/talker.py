#!/usr/bin/env python3
"""Measures the talker of a Qwen3-Omni: frames/s of concurrent speeches, compared with one at a time, and the time to
the first samples, compared with the time to the whole speech. Both sides take turns in one run.

    benchmarks/talker.py MODEL --concurrency 8
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.running import running
from cornserve.concurrency import gather_all
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.talker import SpokenChunk, TalkerOptions, TalkerRequest, TalkerTask

if TYPE_CHECKING:
    from cornserve_executors.talker.engine import TalkerEngine


@dataclass(frozen=True, slots=True)
class TalkerFigures:
    """The medians of all rounds."""

    alone_audio_seconds_per_second: float
    concurrent_audio_seconds_per_second: float
    first_samples_ms: float
    """The time of one speech, without others."""
    whole_speech_ms: float
    """The time of the same speech."""
    concurrent_first_samples_ms: float


@dataclass(frozen=True, slots=True)
class SpeechTiming:
    first_ms: float
    whole_ms: float
    audio_seconds: float


def main() -> None:
    arguments = _arguments()
    figures = asyncio.run(_measure(arguments.model, arguments.concurrency, arguments.tokens, arguments.rounds))
    machine = MachineInfo.current()
    report = {"machine": asdict(machine), "figures": asdict(figures)}
    if arguments.json:
        print(json.dumps(report))
        return
    table = create_table(("figure",), ("median",))
    for name, value in asdict(figures).items():
        table.add_row(name, f"{value:.2f}")
    print_report(machine, f"{arguments.concurrency} concurrent speeches", table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=lambda path: Path(path).resolve(), help="the model directory")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=300, help="the maximum length of prompt and speech in tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.tokens = 1, 80
    return arguments


async def _measure(model: Path, concurrency: int, tokens: int, rounds: int) -> TalkerFigures:
    from cornserve_executors.talker.engine import TalkerEngine

    options = TalkerOptions(max_batch_speeches=concurrency, max_tokens=tokens)
    engine = TalkerEngine.load(TalkerTask(model_id=str(model), options=options), TalkerStats())
    try:
        async with running(engine):
            await engine.warm_up()
            alone, together = [], []
            alone_rates, together_rates = [], []
            for _ in range(rounds):
                started = time.perf_counter()
                turns = [await _speak(engine, seed) for seed in range(concurrency)]
                alone_rates.append(_rate(turns, started))
                started = time.perf_counter()
                batch = await gather_all(_speak(engine, seed) for seed in range(concurrency))
                together_rates.append(_rate(batch, started))
                alone += turns
                together += batch
    finally:
        engine.shutdown()
    return TalkerFigures(
        alone_audio_seconds_per_second=median(alone_rates),
        concurrent_audio_seconds_per_second=median(together_rates),
        first_samples_ms=median(timing.first_ms for timing in alone),
        whole_speech_ms=median(timing.whole_ms for timing in alone),
        concurrent_first_samples_ms=median(timing.first_ms for timing in together),
    )


def _rate(timings: Sequence[SpeechTiming], started: float) -> float:
    return sum(timing.audio_seconds for timing in timings) / (time.perf_counter() - started)


async def _speak(engine: TalkerEngine, seed: int) -> SpeechTiming:
    started = time.perf_counter()
    arrivals: list[float] = []

    async def send(chunk: SpokenChunk) -> None:
        arrivals.append(time.perf_counter())

    request = TalkerRequest(user_messages=["What is corn?"], token_ids=list(b"A plant from America"), seed=seed)
    response = await engine.speak(request, str(seed), send)
    first = arrivals[0] if arrivals else time.perf_counter()
    return SpeechTiming(1000 * (first - started), 1000 * (time.perf_counter() - started), response.seconds)


if __name__ == "__main__":
    main()
