#!/usr/bin/env python3
"""Measures how much large requests delay small ones, and how long they block the gateway's event loop.

A local instance serves two apps on one executor. While a client sends a large request to one app, another client sends
a small request to each app every 50 ms. The large requests differ in the work that they cause.

    benchmarks/large_bodies.py                  # an echo executor: the gateway's share
    benchmarks/large_bodies.py --model MODEL    # a language model: also templates and tokenization
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
from rich.table import Table

from benchmarks.harness.instance import BenchmarkInstance, running_instance
from benchmarks.harness.large_requests import Request, large_requests, small_request
from benchmarks.harness.loop_probe import read_stalls
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.processes import CoreAssignment, cpu_seconds, resident_mib
from benchmarks.harness.report import create_table, print_report
from cornserve.bench.percentiles import percentile

INTERVAL_SECONDS = 0.05

LARGE, SMALL = "large", "small"
"""The apps."""

ALONE_SECONDS = 2.0
"""The duration of the measurement without a large request."""

_ECHO = """
from cornserve import App, Blob, Task, UnitTask
from cornserve_echo import EchoResponse
from cornserve_tasklib import ChatRequest, ChatResponse, CompletionRequest, EmbeddingRequest, EmbeddingResponse
from pydantic import BaseModel

class Content(BaseModel):
    text: str
    texts: list[str] = []
    tokens: list[int] = []
    blobs: list[Blob] = []

class Receive(UnitTask[Content, EchoResponse]):
    executor = "echo"

class Answer(Task[ChatRequest | CompletionRequest, ChatResponse]):
    def post_init(self) -> None:
        self.receive = Receive()

    def invoke(self, request: ChatRequest | CompletionRequest) -> ChatResponse:
        request = request.model_copy()  # uses all fields
        if isinstance(request, CompletionRequest):
            content = Content(text="received", tokens=request.prompt)
        else:
            texts = [message.content for message in request.messages if isinstance(message.content, str)]
            content = Content(text="received", texts=texts, blobs=[image.data for image in request.images])
        return ChatResponse(text=self.receive.invoke(content).text)

class Embed(Task[EmbeddingRequest, EmbeddingResponse]):
    def post_init(self) -> None:
        self.receive = Receive()

    def invoke(self, request: EmbeddingRequest) -> EmbeddingResponse:
        self.receive.invoke(Content(text="received", texts=request.input)).text
        return EmbeddingResponse(embeddings=["AAAAAA=="] * len(request.input), prompt_tokens=1)

app = App(name="NAME", paths=[PATH()])
"""

_MODEL = """
from cornserve import App
from cornserve_tasklib import LLMTask
app = App(name="NAME", paths=[LLMTask(model_id="MODEL")])
"""


@dataclass(frozen=True, slots=True)
class Interference:
    """The delays of small requests during a large one."""

    request: str
    status: int
    seconds: float
    """The duration of the large request."""
    same_ms: tuple[float, float]
    """The 99th percentile and the maximum of small requests' latency, on the same app."""
    other_ms: tuple[float, float]
    """The same on the other app."""
    stall_ms: float
    """The longest time in which the gateway's event loop was blocked."""
    stall_cpu_ms: float
    """The CPU time of the event loop's thread in the longest stall."""
    cpu_ms: float
    """CPU time of the gateway."""
    gateway_mib: float
    message: str
    """The start of the error, or of the response."""


def main() -> None:
    options = _options()
    if options.model is None:
        apps = {name: _ECHO.replace("PATH", "Answer") for name in (LARGE, SMALL)}
        apps[f"{LARGE}-embeddings"] = _ECHO.replace("PATH", "Embed")
    else:
        apps = dict.fromkeys((LARGE, SMALL), _MODEL.replace("MODEL", str(options.model)))
    apps = {name: source.replace("NAME", name) for name, source in apps.items()}
    machine = MachineInfo.current()
    with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as directory:
        stalls = Path(directory) / "stalls"
        probe = ("-m", "benchmarks.harness.loop_probe", str(stalls))
        with running_instance(apps, CoreAssignment(), probe) as instance:
            results = asyncio.run(_measure(instance, stalls, options))
    if options.json:
        print(json.dumps({"machine": asdict(machine), "results": [asdict(result) for result in results]}))
    else:
        print_report(machine, "", _table(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="the directory of a language model")
    parser.add_argument("--only", default="", metavar="TEXT", help="only requests whose description contains TEXT")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if options.quick:
        options.only = "4 MB"
    return options


async def _measure(instance: BenchmarkInstance, stalls: Path, options: argparse.Namespace) -> list[Interference]:
    results = [await _interference(instance, stalls, "none", None)]
    for name, create in large_requests(LARGE).items():
        if options.only in name and (options.model is None or not name.startswith(("2,048", "image", "3 ", "64 "))):
            results.append(await _interference(instance, stalls, name, create()))
            print(results[-1], file=sys.stderr)
    return results


async def _interference(instance: BenchmarkInstance, stalls: Path, name: str, large: Request | None) -> Interference:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{instance.port}") as session:
        latencies: dict[str, list[float]] = {LARGE: [], SMALL: []}
        probes = [asyncio.create_task(_send_small(session, app, latencies[app])) for app in latencies]
        await asyncio.sleep(0.5)
        for values in latencies.values():
            values.clear()
        cpu, started = cpu_seconds(instance.gateway), time.monotonic()
        if large is None:
            await asyncio.sleep(ALONE_SECONDS)
            status, message = 0, ""
        else:
            status, message = await asyncio.to_thread(_send_large, instance.port, large)
        ended = time.monotonic()
        await asyncio.sleep(0.5)
        for probe in probes:
            probe.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*probes)
    during = [stall for stall in read_stalls(stalls) if started <= stall.ended <= ended + 0.5]
    return Interference(
        name,
        status,
        ended - started,
        _p99_and_max(latencies[LARGE]),
        _p99_and_max(latencies[SMALL]),
        1000 * max((stall.seconds for stall in during), default=0),
        1000 * max((stall.cpu_seconds for stall in during), default=0),
        1000 * (cpu_seconds(instance.gateway) - cpu),
        resident_mib(instance.gateway),
        message,
    )


def _p99_and_max(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return 1000 * percentile(ordered, 99), 1000 * ordered[-1]


async def _send_small(session: aiohttp.ClientSession, app: str, latencies: list[float]) -> None:
    """Sends small requests at a fixed rate, whether or not earlier ones have responses."""
    path, body = small_request(app)

    async def send() -> None:
        started = time.monotonic()
        async with session.post(path, data=body, headers={"content-type": "application/json"}) as response:
            content = await response.read()
            if response.status != 200:
                raise RuntimeError(f"a small request failed: {response.status} {content[:300]!r}")
        latencies.append(time.monotonic() - started)

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(send())
            await asyncio.sleep(INTERVAL_SECONDS)


def _send_large(port: int, request: Request) -> tuple[int, str]:
    path, body = request
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()[:160].decode(errors="replace")
    finally:
        connection.close()


def _table(results: list[Interference]) -> Table:
    numbers = ("status", "s", "same app p99, max ms", "other app p99, max ms", "stall ms", "CPU of it", "CPU ms", "MiB")
    table = create_table(("large request",), numbers)
    for result in results:
        table.add_row(
            result.request,
            str(result.status or ""),
            f"{result.seconds:.2f}",
            *(f"{p99:.0f}, {longest:.0f}" for p99, longest in (result.same_ms, result.other_ms)),
            *(f"{value:.0f}" for value in (result.stall_ms, result.stall_cpu_ms, result.cpu_ms, result.gateway_mib)),
        )
    return table


if __name__ == "__main__":
    main()
