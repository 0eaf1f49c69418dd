#!/usr/bin/env python3
"""What the gateway adds to a call of an executor: requests/s, latency, CPU per request, memory.

A local instance serves a composite task on one echo executor: a chat that is answered with sixteen words, whole or
streamed word by word. A closed loop of 1 to 512 requests in flight goes through `/v1/chat/completions`, and in the
same run directly to the executor, over one stream of its own gRPC contract. Every answer is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import to_json
from rich.progress import Progress

from benchmarks.harness.instance import Instance, serving
from benchmarks.harness.load.job import ANSWER, Job, Result, Target
from benchmarks.harness.machine import Machine
from benchmarks.harness.processes import Cores, pinned, resident_mib
from benchmarks.harness.report import show, table_of
from benchmarks.harness.sampler import SAMPLE

CALM = 0.15
"""Of a core: when others use more during a measurement, it is taken again, as long as patience lasts."""

ROOT = Path(__file__).resolve().parent.parent

_APP = f"""
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

class Count(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        answer = self.echo.invoke(EchoRequest(text={ANSWER!r}))
        return ChatResponse(RESPONSE)

app = App(name="NAME", paths=[Count()])
"""

WHOLE, STREAMED = "count", "count-aloud"
"""Two apps that share the executor, because a language model's task is asked for either, and pays for no other: a value
that the executor sends with its end, or words as they come."""

APPS = {
    WHOLE: _APP.replace("NAME", WHOLE).replace("RESPONSE", "text=answer.text"),
    STREAMED: _APP.replace("NAME", STREAMED).replace(
        "RESPONSE", 'chunks=answer.words.map(lambda word: ChatChunk(text=word + " "))'
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What the calm rounds at one setting gave."""

    stream: bool
    concurrency: int
    gateway: Result
    executor: Result
    """Called directly."""

    @property
    def added_p50_ms(self) -> float:
        return self.gateway.p50_ms - self.executor.p50_ms

    @property
    def added_p99_ms(self) -> float:
        return self.gateway.p99_ms - self.executor.p99_ms


@dataclass(frozen=True, slots=True)
class Report:
    machine: Machine
    pinned: str
    rounds: int
    seconds: float
    """Of each measurement."""
    rss_mib: tuple[float, float]
    """Of the gateway: serving, before the first request, and after the last."""
    rows: list[Row]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that what was started is ended.
    options = _options()
    machine = Machine.here()
    cores = Cores() if options.unpinned else Cores.divided()
    with serving(APPS, cores, _gateway(options.profile)) as instance:
        if options.profile:
            os.kill(instance.gateway, SAMPLE)
        report = _measure(instance, machine, cores, options)
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        _show(report)
    if options.profile:
        print(options.profile.with_name(options.profile.name + ".top").read_text(), file=sys.stderr)


def _gateway(profile: Path | None) -> tuple[str, ...]:
    return ("-m", "cornserve.gateway") if profile is None else ("-m", "benchmarks.harness.sampler", str(profile))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64, 512], metavar="N")
    parser.add_argument("--modes", nargs="+", choices=("whole", "stream"), default=["whole", "stream"])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each figure (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default: %(default)s)")
    parser.add_argument(
        "--patience",
        type=float,
        default=50.0,
        help="seconds for repeating what others disturbed (default: %(default)s)",
    )
    parser.add_argument("--unpinned", action="store_true", help="does not keep a core for the gateway")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="samples the gateway; FILE gets its stacks")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs")
    parser.add_argument("--json", action="store_true", help="prints JSON instead of a table")
    options = parser.parse_args()
    if options.quick:
        options.concurrency, options.rounds, options.seconds, options.patience = [1, 8], 1, 0.2, 0
    return options


def _measure(instance: Instance, machine: Machine, cores: Cores, options: argparse.Namespace) -> Report:
    settings = [(mode == "stream", concurrency) for mode in options.modes for concurrency in options.concurrency]
    generator = Generator(cores, options.patience)
    results: dict[tuple[bool, int, Target], list[Result]] = {}
    before = resident_mib(instance.gateway)
    with Progress(disable=options.json) as progress:
        task = progress.add_task("measuring", total=options.rounds * len(settings) * 2)
        for _ in range(options.rounds):
            for stream, concurrency in settings:
                for target in ("executor", "gateway"):
                    job = _job(instance, target, stream, concurrency, options.seconds)
                    results.setdefault((stream, concurrency, target), []).append(generator.run(job))
                    progress.advance(task)
    after = resident_mib(instance.gateway)
    rows = [
        Row(stream, many, _settle(results[stream, many, "gateway"]), _settle(results[stream, many, "executor"]))
        for stream, many in settings
    ]
    return Report(machine, str(cores), options.rounds, options.seconds, (before, after), rows)


def _job(instance: Instance, target: Target, stream: bool, concurrency: int, seconds: float) -> Job:
    return Job(
        target=target,
        address=f"127.0.0.1:{instance.port}" if target == "gateway" else instance.endpoint,
        stream=stream,
        concurrency=concurrency,
        seconds=seconds,
        model=STREAMED if stream else WHOLE,
        processes=(("gateway", instance.gateway), ("executor", instance.executor)),
    )


class Generator:
    """Measures, each time by a process of its own; again, within its patience, when others disturb it."""

    def __init__(self, cores: Cores, patience: float) -> None:
        self._cores = cores
        self._patience = patience

    def run(self, job: Job) -> Result:
        """Raises `RuntimeError` unless every answer was right."""
        result = self._run_once(job)
        while result.others > CALM and self._patience > 0:
            started = time.monotonic()
            time.sleep(1)
            result = min(result, self._run_once(job), key=lambda one: one.others)
            self._patience -= time.monotonic() - started
        return result

    def _run_once(self, job: Job) -> Result:
        command = [sys.executable, "-m", "benchmarks.harness.load", to_json(asdict(job)).decode()]
        with pinned(self._cores.others):
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"the load generator failed at {job}:\n{ended.stderr.decode()}")
        return TypeAdapter(Result).validate_json(ended.stdout)


def _settle(results: Sequence[Result]) -> Result:
    """The median, figure by figure, of the calmer half: of the measurements that others disturbed least."""
    calm = sorted(results, key=lambda result: result.others)[: (len(results) + 1) // 2]
    figures = {
        field.name: statistics.median(getattr(result, field.name) for result in calm)
        for field in fields(Result)
        if field.type in ("float", "int")
    }
    cpu = {name: statistics.median(result.cpu_us[name] for result in calm) for name in calm[0].cpu_us}
    return Result(**figures, cpu_us=cpu)


def _show(report: Report) -> None:
    numbers = ("requests/s", "direct", "p50 ms", "p99 ms", "+p50 ms", "+p99 ms")
    cpu = ("µs gateway", "executor", "direct", "load", "busy", "others")
    table = table_of(("", "in flight"), numbers + cpu)
    for row in report.rows:
        table.add_row(*_cells(row))
    before, after = report.rss_mib
    note = (
        f"{report.pinned}\n"
        f"median of the calmer half of {report.rounds} × {report.seconds:g} s; µs: CPU per request; busy: the gateway, "
        "others: processes that are not ours, of a core\n"
        f"the gateway's memory: {before:.0f} MiB before, {after:.0f} MiB after"
    )
    show(report.machine, note, table)


def _cells(row: Row) -> list[str]:
    through, direct = row.gateway, row.executor
    return [
        "stream" if row.stream else "whole",
        *(str(row.concurrency), f"{through.rate:.0f}", f"{direct.rate:.0f}"),
        *(f"{through.p50_ms:.2f}", f"{through.p99_ms:.2f}", f"{row.added_p50_ms:.2f}", f"{row.added_p99_ms:.2f}"),
        *(f"{through.cpu_us[name]:.0f}" for name in ("gateway", "executor")),
        f"{direct.cpu_us['executor']:.0f}",
        f"{through.cpu_us['load']:.0f}",
        f"{through.busy('gateway'):.0%}",
        f"{max(through.others, direct.others):.0%}",
    ]


if __name__ == "__main__":
    main()
