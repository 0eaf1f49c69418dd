#!/usr/bin/env python3
"""What recording and replaying a composite task costs, beside the same code calling plain functions.

The yardstick runs the same `invoke` with a plain function in the place of the unit task: it builds the same pydantic
inputs, serialises them, and returns an output that it holds already. What exceeds it is the price of the graph.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.harness.machine import Machine
from benchmarks.harness.report import show, table_of
from benchmarks.harness.shapes import SHAPES, Composite, Said, Text
from cornserve.task.errors import Suspension
from cornserve.task.recording import Invocation, Recording
from cornserve.task.replayable_random import ReplayableRandom

SIZES = (1, 10, 100)
KEPT_REQUESTS = 50
"""Recorded at once to see what one of them holds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one pass."""

    min: float
    median: float


@dataclass(frozen=True, slots=True)
class Row:
    shape: str
    invocations: int
    plays: int
    """As often does `invoke` run until nothing new is recorded."""
    plain: Timing
    record: Timing
    """All plays that record, together; not what happens between them."""
    replay: Timing
    """One play of a request whose invocations have all ended."""
    bytes_per_request: int


def main() -> None:
    options = _options()
    repeats, seconds = (3, 0.002) if options.quick else (options.repeats, 0.01)
    machine = Machine.here()
    rows = [measure(shape, size, repeats, seconds) for shape in SHAPES for size in SIZES]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "repeats": repeats, "rows": [asdict(row) for row in rows]}))
    else:
        _show(machine, repeats, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50, help="samples of each figure (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs")
    parser.add_argument("--json", action="store_true", help="prints JSON instead of a table")
    return parser.parse_args()


def measure(shape: str, invocations: int, repeats: int, seconds: float) -> Row:
    task = Composite(shape=shape)
    ended, plays, _ = record(task, invocations)
    plain, recording, replay = _timings(
        (
            _clocked(lambda: SHAPES[shape](_plain, invocations)),
            lambda: record(task, invocations)[2],
            _clocked(lambda: _play(ended, task, invocations)),
        ),
        repeats,
        seconds,
    )
    return Row(shape, invocations, plays, plain, recording, replay, _bytes_per_request(task, invocations))


_SAID = Said(text="what an executor has said")
_ANSWER = _SAID.values_json()


def _plain(request: Text) -> Said:
    """What a function would do that calls an executor: writes its input down. The answer is there already."""
    Text.__pydantic_serializer__.to_json(request, exclude_defaults=True)
    return _SAID


def record(task: Composite, invocations: int) -> tuple[Recording, int, float]:
    """A request recorded and answered to its end; how many plays recorded, and how long they took."""
    recording: Recording | None = None
    plays, spent = 0, 0.0
    while True:
        started = time.perf_counter()
        recording = recording or Recording(ReplayableRandom("request"))
        outcome = _play(recording, task, invocations)
        spent += time.perf_counter() - started
        plays += 1
        _end_all(recording.invocations)
        if not isinstance(outcome, Suspension):
            return recording, plays, spent


def _play(recording: Recording, task: Composite, invocations: int) -> Any:
    return recording.play("Composite", lambda: task.invoke(invocations))


def _end_all(invocations: Sequence[Invocation]) -> None:
    for invocation in invocations:
        if not invocation.ended:
            invocation.finish(_ANSWER)


def _clocked(work: Callable[[], object]) -> Callable[[], float]:
    def clocked() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return clocked


def _timings(works: Sequence[Callable[[], float]], repeats: int, seconds: float) -> list[Timing]:
    """Of samples that each run a work, which gives its own seconds, for about `seconds`.

    The works take turns, so that a noisy neighbour hits all of them, and the garbage collector runs as in a gateway.
    """
    runs = [max(1, round(seconds / max(min(work(), work()), 1e-7))) for work in works]
    samples = [[_mean(work, count) * 1e6 for work, count in zip(works, runs, strict=True)] for _ in range(repeats)]
    return [Timing(round(min(one), 2), round(statistics.median(one), 2)) for one in zip(*samples, strict=True)]


def _mean(work: Callable[[], float], runs: int) -> float:
    return sum(work() for _ in range(runs)) / runs


def _bytes_per_request(task: Composite, invocations: int) -> int:
    """What a request holds once all is recorded and answered."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = [record(task, invocations)[0] for _ in range(KEPT_REQUESTS)]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] // len(kept)
    finally:
        tracemalloc.stop()


def _show(machine: Machine, repeats: int, rows: Sequence[Row]) -> None:
    table = table_of(
        ("task",),
        ("calls", "plays", "plain", "record", "replay", "rec ÷ plain", "rec ÷ call", "rep ÷ call", "KiB"),
    )
    for row in rows:
        table.add_row(*_cells(row), end_section=row.invocations == SIZES[-1])
    note = f"µs: smallest (median) of {repeats} samples; ratios and figures per invocation are of the smallest"
    show(machine, note, table)


def _cells(row: Row) -> list[str]:
    timings = [f"{_short(timing.min)} ({_short(timing.median)})" for timing in (row.plain, row.record, row.replay)]
    return [
        *(row.shape, str(row.invocations), str(row.plays)),
        *timings,
        f"{row.record.min / row.plain.min:.1f}",
        f"{row.record.min / row.invocations:.1f}",
        f"{row.replay.min / row.invocations:.1f}",
        f"{row.bytes_per_request / 1024:.1f}",
    ]


def _short(microseconds: float) -> str:
    return f"{microseconds:.0f}" if microseconds >= 100 else f"{microseconds:.1f}"


if __name__ == "__main__":
    main()
