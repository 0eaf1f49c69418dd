#!/usr/bin/env python3
"""What the gateway adds to a call of an executor: requests/s, latency, CPU per request, memory.

A local instance serves a composite task on one echo executor: a chat that is answered with sixteen words, whole,
streamed word by word, or streamed with a pause before each word. A closed loop of 1 to 512 requests in flight goes
through `/v1/chat/completions`, and in the same run directly to the executor, over one line of its own contract;
and, with --peers, through proxies on the gateway's core to an HTTP server that gives the same answers. Every answer is
checked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from rich.progress import Progress

from benchmarks.harness import peers
from benchmarks.harness.gateway_report import Report, Row
from benchmarks.harness.generator import Generator, settle
from benchmarks.harness.instance import Instance, serving
from benchmarks.harness.load.job import MODELS, PACE_SECONDS, WORDS, Job, Mode, Result
from benchmarks.harness.machine import Machine
from benchmarks.harness.peers import Peer
from benchmarks.harness.processes import Cores, resident_mib
from benchmarks.harness.sampler import SAMPLE

_APP = f"""
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

class Count(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        words = {WORDS!r}[: request.max_tokens]
        answer = self.echo.invoke(EchoRequest(text=" ".join(words), seconds=SECONDS))
        return ChatResponse(RESPONSE)

app = App(name="NAME", paths=[Count()])
"""


def _app(mode: Mode) -> str:
    """The apps share the executor. Each asks it for one thing, as a language model's task does, which pays for no
    other: a value that the executor sends with its end, or words as they come.
    """
    response = "text=answer.text" if mode == "whole" else 'chunks=answer.words.map(lambda it: ChatChunk(text=it + " "))'
    seconds = PACE_SECONDS * len(WORDS) if mode == "paced" else 0
    return _APP.replace("NAME", MODELS[mode]).replace("SECONDS", str(seconds)).replace("RESPONSE", response)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that what was started is ended.
    options = _options()
    machine = Machine.here()
    cores = Cores() if options.unpinned else Cores.divided()
    apps = {MODELS[mode]: _app(mode) for mode in options.modes}
    with ExitStack() as cleanup:
        logs = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="cornserve-benchmark-")))
        beside = cleanup.enter_context(peers.peers(options.peers, cores, logs))
        instance = cleanup.enter_context(serving(apps, cores, _gateway(options.profile)))
        if options.profile:
            os.kill(instance.gateway, SAMPLE)
        report = _measure(instance, beside, machine, cores, options)
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        report.show()
    if options.profile:
        print(options.profile.with_name(options.profile.name + ".top").read_text(), file=sys.stderr)


def _gateway(profile: Path | None) -> tuple[str, ...]:
    return ("-m", "cornserve.gateway") if profile is None else ("-m", "benchmarks.harness.sampler", str(profile))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64, 512], metavar="N")
    parser.add_argument("--modes", nargs="+", choices=get_args(Mode), default=[*get_args(Mode)])
    parser.add_argument(
        "--peers", nargs="+", choices=("none", "all", *peers.ALL), default=["none"], help="proxies to measure beside"
    )
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
        options.concurrency, options.rounds, options.seconds, options.patience = [8], 1, 0.2, 0
    options.peers = [name for name in peers.ALL if {name, "all"} & set(options.peers)]
    if missing := peers.missing(options.peers):
        parser.error(f"not installed: {', '.join(missing)}; run benchmarks/peers/install")
    return options


def _measure(
    instance: Instance, beside: Mapping[str, Peer], machine: Machine, cores: Cores, options: argparse.Namespace
) -> Report:
    settings = [(mode, concurrency) for mode in options.modes for concurrency in options.concurrency]
    generator = Generator(cores, options.patience)
    results: dict[tuple[Mode, int, str], list[Result]] = {}
    before = resident_mib(instance.gateway)
    with Progress(disable=options.json) as progress:
        task = progress.add_task("measuring", total=options.rounds * len(settings) * (2 + len(beside)))
        for _ in range(options.rounds):
            for mode, many in settings:
                for target, job in _jobs(instance, beside, mode, many, options.seconds):
                    results.setdefault((mode, many, target), []).append(generator.run(job))
                    progress.advance(task)
    return Report(
        machine=machine,
        pinned=str(cores),
        rounds=options.rounds,
        seconds=options.seconds,
        requests=sum(sum(it.requests for it in taken) for key, taken in results.items() if key[2] == "gateway"),
        rss_mib=(before, resident_mib(instance.gateway)),
        peers_rss_mib={name: resident_mib(peer.process) for name, peer in beside.items()},
        rows=[_row(results, mode, many, [*beside]) for mode, many in settings],
    )


def _jobs(
    instance: Instance, beside: Mapping[str, Peer], mode: Mode, many: int, seconds: float
) -> Iterator[tuple[str, Job]]:
    ours = (("gateway", instance.gateway), ("executor", instance.executor))
    yield "executor", Job("invocation", instance.endpoint, mode, many, seconds, ours)
    yield "gateway", Job("chat", f"127.0.0.1:{instance.port}", mode, many, seconds, ours)
    for name, peer in beside.items():
        yield name, Job("chat", peer.address, mode, many, seconds, (("peer", peer.process), ("engine", peer.engine)))


def _row(results: Mapping[tuple[Mode, int, str], list[Result]], mode: Mode, many: int, names: Sequence[str]) -> Row:
    gateway, executor, *others = (settle(results[mode, many, name]) for name in ("gateway", "executor", *names))
    return Row(mode, many, gateway, executor, dict(zip(names, others, strict=True)))


if __name__ == "__main__":
    main()
