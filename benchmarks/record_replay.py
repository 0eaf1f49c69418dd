#!/usr/bin/env python3
"""Measures the cost of recording and replaying a composite task, compared with calls of plain functions.

The baseline runs the same `invoke` with a plain function in place of the unit task: it creates the same pydantic
inputs, serializes them, and returns a prepared output. The difference is the cost of record and replay.

A second table has the cost of dry records, which determine the types of requests, for tasks of the library.
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
from functools import partial
from typing import Any

from benchmarks.harness.composite_tasks import SHAPES, CompositeTask, TextInput, TextOutput
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from cornserve.app.app import App
from cornserve.app.probes import default_probes
from cornserve.task.base import Task
from cornserve.task.dry_record import DryRecording
from cornserve.task.errors import Suspension
from cornserve.task.recording import Invocation, Recording
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_tasklib import ChatRequest
from cornserve_tasklib.model_families import default_paths, planned_paths

SIZES = (1, 10, 100)
MEMORY_REQUESTS = 50
"""The number of recordings whose memory is measured."""


@dataclass(frozen=True, slots=True)
class PassTiming:
    """The duration of one pass in microseconds."""

    min: float
    median: float


@dataclass(frozen=True, slots=True)
class RecordReplayRow:
    shape: str
    invocations: int
    runs: int
    """The number of runs of `invoke` until no new invocation is recorded."""
    plain: PassTiming
    record: PassTiming
    """The sum of all runs that record, without the time between them."""
    resume: PassTiming
    """The same, if the code runs on with each value in place of a run from its start, as in app hosts."""
    replay: PassTiming
    """One replay of a request after all its invocations have ended."""
    bytes_per_request: int


@dataclass(frozen=True, slots=True)
class DryRecordRow:
    path: str
    request: str
    timing: PassTiming


def main() -> None:
    options = _options()
    repeats, seconds = (3, 0.002) if options.quick else (options.repeats, 0.01)
    machine = MachineInfo.current()
    rows = [measure(shape, size, repeats, seconds) for shape in SHAPES for size in SIZES]
    dry_rows = measure_dry_records(repeats, seconds)
    if options.json:
        report = {"rows": [asdict(row) for row in rows], "dry_records": [asdict(row) for row in dry_rows]}
        print(json.dumps({"machine": asdict(machine), "repeats": repeats, **report}))
    else:
        _print(machine, repeats, rows)
        _print_dry_records(machine, repeats, dry_rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50, help="samples of each figure (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def measure(shape: str, invocations: int, repeats: int, seconds: float) -> RecordReplayRow:
    task = CompositeTask(shape=shape)
    ended, runs, _ = record(task, invocations)
    plain, recording, resume, replay = _timings(
        (
            _timed(lambda: SHAPES[shape](_plain, invocations)),
            lambda: record(task, invocations)[2],
            lambda: record(task, invocations, resumes=True)[2],
            _timed(lambda: _run_task(ended, task, invocations)),
        ),
        repeats,
        seconds,
    )
    memory = _bytes_per_request(task, invocations)
    return RecordReplayRow(shape, invocations, runs, plain, recording, resume, replay, memory)


def measure_dry_records(repeats: int, seconds: float) -> list[DryRecordRow]:
    paths = planned_paths(default_paths("Qwen/Qwen2.5-VL-3B-Instruct"), ())
    probes = default_probes(App(name="vision", paths=list(paths.values())))
    cases = [
        (name, _request_name(request), _timed(partial(_dry_record, path, request)))
        for name, path in paths.items()
        for request in probes
    ]
    timings = _timings([work for *_, work in cases], repeats, seconds)
    return [DryRecordRow(name, request, timing) for (name, request, _), timing in zip(cases, timings, strict=True)]


def _request_name(request: ChatRequest) -> str:
    return "+".join(medium.modality for medium in request.media) or "text"


def _dry_record(path: Task[Any, Any], request: ChatRequest) -> frozenset[str]:
    recording = DryRecording("request")
    recording.record(path, request)
    components = recording.needed_components
    recording.close()
    return components


_OUTPUT = TextOutput(text="the output of an executor")
_VALUES = _OUTPUT.values_json()


def _plain(request: TextInput) -> TextOutput:
    """Serializes its input like a call of an executor, and returns a prepared output."""
    TextInput.__pydantic_serializer__.to_json(request, exclude_defaults=True)
    return _OUTPUT


def record(task: CompositeTask, invocations: int, *, resumes: bool = False) -> tuple[Recording, int, float]:
    """Records a request until it ends; returns the recording, the number of runs, and their duration."""
    recording: Recording | None = None
    runs, seconds = 0, 0.0
    while True:
        started = time.perf_counter()
        recording = recording or Recording(ReplayableRandom("request"), resumes=resumes)
        outcome = _run_task(recording, task, invocations)
        seconds += time.perf_counter() - started
        runs += 1
        _finish_all(recording.invocations)
        if not isinstance(outcome, Suspension):
            return recording, runs, seconds


def _run_task(recording: Recording, task: CompositeTask, invocations: int) -> Any:
    return recording.run("CompositeTask", lambda: task.invoke(invocations))


def _finish_all(invocations: Sequence[Invocation]) -> None:
    for invocation in invocations:
        if not invocation.ended:
            invocation.finish(_VALUES)


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def timed() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return timed


def _timings(works: Sequence[Callable[[], float]], repeats: int, seconds: float) -> list[PassTiming]:
    """Measures functions that return their own duration. Each sample runs a function for about `seconds`.

    The samples of the functions alternate, so that other processes disturb all of them equally. The garbage collector
    runs as in a gateway.
    """
    runs = [max(1, round(seconds / max(min(work(), work()), 1e-7))) for work in works]
    samples = [[_mean(work, count) * 1e6 for work, count in zip(works, runs, strict=True)] for _ in range(repeats)]
    return [
        PassTiming(round(min(sample), 2), round(statistics.median(sample), 2)) for sample in zip(*samples, strict=True)
    ]


def _mean(work: Callable[[], float], runs: int) -> float:
    return sum(work() for _ in range(runs)) / runs


def _bytes_per_request(task: CompositeTask, invocations: int) -> int:
    """Returns the memory of a recording whose invocations have ended."""
    gc.collect()
    tracemalloc.start()
    try:
        recordings = [record(task, invocations)[0] for _ in range(MEMORY_REQUESTS)]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] // len(recordings)
    finally:
        tracemalloc.stop()


def _print(machine: MachineInfo, repeats: int, rows: Sequence[RecordReplayRow]) -> None:
    table = create_table(
        ("task",),
        ("calls", "runs", "plain", "record", "resume", "replay", "rec ÷ plain", "res ÷ call", "rep ÷ call", "KiB"),
    )
    for row in rows:
        table.add_row(*_cells(row), end_section=row.invocations == SIZES[-1])
    note = f"µs: minimum (median) of {repeats} samples; ratios and figures per invocation use the minimum"
    print_report(machine, note, table)


def _print_dry_records(machine: MachineInfo, repeats: int, rows: Sequence[DryRecordRow]) -> None:
    table = create_table(("path", "request"), ("dry record",))
    for row in rows:
        table.add_row(row.path, row.request, f"{_short(row.timing.min)} ({_short(row.timing.median)})")
    print_report(machine, f"µs: minimum (median) of {repeats} samples", table)


def _cells(row: RecordReplayRow) -> list[str]:
    measured = (row.plain, row.record, row.resume, row.replay)
    timings = [f"{_short(timing.min)} ({_short(timing.median)})" for timing in measured]
    return [
        *(row.shape, str(row.invocations), str(row.runs)),
        *timings,
        f"{row.record.min / row.plain.min:.1f}",
        f"{row.resume.min / row.invocations:.1f}",
        f"{row.replay.min / row.invocations:.1f}",
        f"{row.bytes_per_request / 1024:.1f}",
    ]


def _short(microseconds: float) -> str:
    return f"{microseconds:.0f}" if microseconds >= 100 else f"{microseconds:.1f}"


if __name__ == "__main__":
    main()
