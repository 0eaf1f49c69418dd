#!/usr/bin/env python3
"""Measures chats about images on one path of a multimodal model: requests/s, latency, and memory of all processes.

A local instance serves MODEL. Each request contains a new image and generates a few tokens. After each tenth of the
requests, the benchmark measures the memory of gateway, encoder and language model, which would show a leak. Shared
memory counts for each process that has touched it: a slab counts for its producer and again for its consumers.

    benchmarks/images.py MODEL --path e-l --requests 5000

With --large-images, it measures the latency of small images, one after the other, while an executor encodes the images
of another request, which have the maximum size.

    benchmarks/images.py MODEL --path e-l --large-images 10
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import psutil
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report

APP = "images"
CHECKPOINTS = 10
LARGE_SIDE = 8000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    rss_mib: dict[str, float]
    """The memory by process: gateway and executor groups."""
    slab_held_mib: float


@dataclass(frozen=True, slots=True)
class InterferenceResult:
    """Latencies of small images, alone and during a request with large images."""

    alone_ms: list[float]
    concurrent_ms: list[float]
    large_seconds: float
    """The duration of the request with large images."""
    rss_mib: dict[str, float]
    """The peak memory by process."""


@dataclass(frozen=True, slots=True)
class ImageBenchmarkOptions:
    model: Path
    path: str
    requests: int
    concurrency: int
    side: int
    tokens: int
    large_images: int


def main() -> None:
    options, as_json = _options()
    with _instance(options) as home:
        url = json.loads((home / "instance.json").read_text())["url"]
        report: dict[str, Any] = {"machine": asdict(MachineInfo.current())}
        show: Callable[[], None]
        if options.large_images:
            interference = asyncio.run(_measure_interference(options, url, home))
            report["interference"] = asdict(interference)
            show = partial(_print_interference, options, interference)
        else:
            checkpoints = asyncio.run(_measure(options, url, home))
            report["checkpoints"] = [asdict(checkpoint) for checkpoint in checkpoints]
            show = partial(_print_checkpoints, options, checkpoints)
    if as_json:
        print(json.dumps(report))
    else:
        show()


def _options() -> tuple[ImageBenchmarkOptions, bool]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the model directory")
    parser.add_argument("--path", default="e-l", choices=("monolith", "e-l", "e-el"))
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--side", type=int, default=112, help="the width and height of images in pixels")
    parser.add_argument("--tokens", type=int, default=4, help="the length of responses")
    parser.add_argument("--large-images", type=int, default=0, metavar="N", help="N large images in another request")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.requests < CHECKPOINTS:
        parser.error(f"--requests: must be at least {CHECKPOINTS}")
    requests = 40 if arguments.quick else arguments.requests
    options = ImageBenchmarkOptions(
        arguments.model,
        arguments.path,
        requests,
        arguments.concurrency,
        arguments.side,
        arguments.tokens,
        arguments.large_images,
    )
    return options, arguments.json


@contextmanager
def _instance(options: ImageBenchmarkOptions) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as directory:
        home = Path(directory)
        megapixels = max(128, options.large_images * LARGE_SIDE**2 // 1_000_000)
        _cornserve(home, "up", "--detach", "--port", "0", "--limit", f"request-megapixels={megapixels}")
        try:
            _cornserve(home, "deploy", str(options.model), "--name", APP, "--share", options.path)
            yield home
        finally:
            _cornserve(home, "down")


def _cornserve(home: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "cornserve.cli", *arguments]
    environment = os.environ | {"CORNSERVE_HOME": str(home)}
    subprocess.run(command, env=environment, check=True, stdout=sys.stderr, stderr=sys.stderr)


async def _measure(options: ImageBenchmarkOptions, url: str, home: Path) -> list[Checkpoint]:
    checkpoints = []
    ends = [options.requests * part // CHECKPOINTS for part in range(CHECKPOINTS + 1)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task("requests", total=options.requests)
            for begin, end in pairwise(ends):
                bodies = [_body([number], options.side, options) for number in range(begin, end)]
                started = time.perf_counter()
                latencies = await _send_all(session, url, options, bodies)
                seconds = time.perf_counter() - started
                progress.advance(bar, end - begin)
                held = await _slab_held_mib(session, url)
                rss = await asyncio.to_thread(_rss, home)
                checkpoints.append(_checkpoint(end, seconds, latencies, rss, held))
    return checkpoints


async def _measure_interference(options: ImageBenchmarkOptions, url: str, home: Path) -> InterferenceResult:
    numbers = count()
    large = _body([next(numbers) for _ in range(options.large_images)], LARGE_SIDE, options)
    async with aiohttp.ClientSession() as session:

        async def send(body: bytes) -> float:
            (seconds,) = await _send_all(session, url, options, [body])
            return seconds

        alone = [1000 * await send(_body([next(numbers)], options.side, options)) for _ in range(20)]
        sending = asyncio.create_task(send(large))
        concurrent: list[float] = []
        rss: dict[str, float] = {}
        while not sending.done():
            concurrent.append(1000 * await send(_body([next(numbers)], options.side, options)))
            now = await asyncio.to_thread(_rss, home)
            rss = {name: max(now[name], rss.get(name, 0)) for name in now}
        return InterferenceResult(alone, concurrent, await sending, rss)


async def _send_all(
    session: aiohttp.ClientSession, url: str, options: ImageBenchmarkOptions, bodies: list[bytes]
) -> list[float]:
    waiting = iter(bodies)
    latencies: list[float] = []
    headers = {"content-type": "application/json"}

    async def client() -> None:
        for body in waiting:
            started = time.perf_counter()
            async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                text = await response.text()
                if response.status != 200:
                    raise RuntimeError(f"a request failed with status {response.status}: {text}")
            latencies.append(time.perf_counter() - started)

    async with asyncio.TaskGroup() as clients:
        for _ in range(options.concurrency):
            clients.create_task(client())
    return sorted(latencies)


def _body(numbers: Sequence[int], side: int, options: ImageBenchmarkOptions) -> bytes:
    """Returns a request with images whose colors are their numbers."""
    images = [{"type": "image_url", "image_url": {"url": _url(number, side)}} for number in numbers]
    content = [{"type": "text", "text": "What is this?"}, *images]
    messages = [{"role": "user", "content": content}]
    body = {"model": APP, "messages": messages, "max_tokens": options.tokens, "temperature": 0, "ignore_eos": True}
    return json.dumps(body).encode()


def _url(number: int, side: int) -> str:
    image = Image.new("RGB", (side, side), tuple(number.to_bytes(3, "big")))
    file = BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def _checkpoint(
    requests: int, seconds: float, latencies: list[float], rss_mib: dict[str, float], held: float
) -> Checkpoint:
    p50, p99 = (1000 * latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    return Checkpoint(requests, seconds, p50, p99, rss_mib, held)


def _rss(home: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for process in psutil.process_iter():
        try:
            arguments = " ".join(process.cmdline())
            if str(home) not in arguments or "cornserve.cli" in arguments:
                continue
            family = [process, *process.children(recursive=True)] if "cornserve_executors" in arguments else [process]
            spec = re.search(r'"executor": ?"(\w+)"', arguments)
            name = spec[1] if spec else arguments.partition("-m ")[2].split()[0].removeprefix("cornserve.")
            rss = sum(member.memory_info().rss for member in family) / 2**20
            found[name] = found.get(name, 0) + rss
        except psutil.NoSuchProcess:
            continue
    return found


async def _slab_held_mib(session: aiohttp.ClientSession, url: str) -> float:
    held = 0.0
    async with session.get(f"{url}/admin/v1/metrics/targets") as response:
        targets = await response.json()
    for target in targets:
        if target["labels"]["component"] == "executor":
            async with session.get(f"http://{target['targets'][0]}/metrics") as response:
                text = await response.text()
            held += sum(
                map(float, re.findall(r'^cornserve_transport_slab_bytes\{state="held"\} (\S+)$', text, re.MULTILINE))
            )
    return held / 2**20


def _print_checkpoints(options: ImageBenchmarkOptions, checkpoints: list[Checkpoint]) -> None:
    names = sorted(checkpoints[0].rss_mib)
    setting = f"{options.concurrency} in flight, images of {options.side}x{options.side}"
    columns = [f"{name} MiB" for name in (*names, "held")]
    table = create_table((), ("requests", "per second", "p50 ms", "p99 ms", *columns))
    last = 0
    for checkpoint in checkpoints:
        rate = (checkpoint.requests - last) / checkpoint.seconds
        last = checkpoint.requests
        memory = (f"{checkpoint.rss_mib.get(name, 0):.0f}" for name in names)
        held = f"{checkpoint.slab_held_mib:.1f}"
        table.add_row(
            str(checkpoint.requests),
            f"{rate:.1f}",
            f"{checkpoint.p50_ms:.0f}",
            f"{checkpoint.p99_ms:.0f}",
            *memory,
            held,
        )
    print_report(MachineInfo.current(), f"{options.path}: {setting}", table)


def _print_interference(options: ImageBenchmarkOptions, measured: InterferenceResult) -> None:
    large = f"{options.large_images} of {LARGE_SIDE}x{LARGE_SIDE} in {measured.large_seconds:.1f} s"
    title = f"{options.path}: an image of {options.side}x{options.side} during {large}"
    table = create_table(("",), ("requests", "p50 ms", "max ms"), title)
    for name, latencies in (("alone", measured.alone_ms), ("concurrent", measured.concurrent_ms)):
        table.add_row(name, str(len(latencies)), f"{median(latencies):.0f}", f"{max(latencies):.0f}")
    memory = ", ".join(f"{name}: {mib:.0f} MiB at most" for name, mib in measured.rss_mib.items())
    print_report(MachineInfo.current(), memory, table)


if __name__ == "__main__":
    main()
