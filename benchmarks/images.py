#!/usr/bin/env python3
"""Chats about images over one path of a multimodal model: requests/s, latency, and the memory of every process.

A local instance serves MODEL. So many requests at a time ask about an image each that nobody has asked about before,
and for a few tokens. After each tenth of the requests, what gateway, encoder and language model take is looked at: what
leaks would grow. What lies in shared memory counts for whoever has touched it, so a slab counts for its producer, and
again for its consumers.

    benchmarks/images.py MODEL --path e-l --requests 5000

With --beside, it tells instead how long small images wait, one after the other, while the images of another request are
encoded, which are as large as an instance takes them.

    benchmarks/images.py MODEL --path e-l --beside 10
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
from rich.table import Table

from benchmarks.harness.machine import Machine

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
    """By process: gateway, and the groups of executors."""
    slab_held_mib: float


@dataclass(frozen=True, slots=True)
class Beside:
    """Latencies of small images."""

    alone_ms: list[float]
    beside_ms: list[float]
    large_seconds: float
    """How long the other request took."""
    rss_mib: dict[str, float]
    """At most, meanwhile."""


@dataclass(frozen=True, slots=True)
class Options:
    model: Path
    path: str
    requests: int
    concurrency: int
    side: int
    tokens: int
    beside: int


def main() -> None:
    options, as_json = _options()
    with _instance(options) as home:
        url = json.loads((home / "instance.json").read_text())["url"]
        report: dict[str, Any] = {"machine": asdict(Machine.here())}
        show: Callable[[], None]
        if options.beside:
            beside = asyncio.run(_measure_beside(options, url, home))
            report["beside"] = asdict(beside)
            show = partial(_show_beside, options, beside)
        else:
            checkpoints = asyncio.run(_measure(options, url, home))
            report["checkpoints"] = [asdict(one) for one in checkpoints]
            show = partial(_show, options, checkpoints)
    if as_json:
        print(json.dumps(report))
    else:
        show()


def _options() -> tuple[Options, bool]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a directory")
    parser.add_argument("--path", default="e-l", choices=("monolith", "e-l", "e-el"))
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--side", type=int, default=112, help="of an image, in pixels")
    parser.add_argument("--tokens", type=int, default=4, help="of an answer")
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="N large images of another request")
    parser.add_argument("--quick", action="store_true", help="few requests: shows that it runs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.requests < CHECKPOINTS:
        parser.error(f"--requests: at least {CHECKPOINTS}, one for each tenth")
    requests = 40 if given.quick else given.requests
    options = Options(given.model, given.path, requests, given.concurrency, given.side, given.tokens, given.beside)
    return options, given.json


@contextmanager
def _instance(options: Options) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as directory:
        home = Path(directory)
        megapixels = max(128, options.beside * LARGE_SIDE**2 // 1_000_000)
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


async def _measure(options: Options, url: str, home: Path) -> list[Checkpoint]:
    checkpoints = []
    ends = [options.requests * part // CHECKPOINTS for part in range(CHECKPOINTS + 1)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task("asking", total=options.requests)
            for begin, end in pairwise(ends):
                bodies = [_body([number], options.side, options) for number in range(begin, end)]
                began = time.perf_counter()
                latencies = await _ask_all(session, url, options, bodies)
                seconds = time.perf_counter() - began
                progress.advance(bar, end - begin)
                held = await _slab_held_mib(session, url)
                rss = await asyncio.to_thread(_rss, home)
                checkpoints.append(_checkpoint(end, seconds, latencies, rss, held))
    return checkpoints


async def _measure_beside(options: Options, url: str, home: Path) -> Beside:
    numbers = count()
    large = _body([next(numbers) for _ in range(options.beside)], LARGE_SIDE, options)
    async with aiohttp.ClientSession() as session:

        async def ask(body: bytes) -> float:
            (seconds,) = await _ask_all(session, url, options, [body])
            return seconds

        alone = [1000 * await ask(_body([next(numbers)], options.side, options)) for _ in range(20)]
        asking = asyncio.create_task(ask(large))
        beside: list[float] = []
        rss: dict[str, float] = {}
        while not asking.done():
            beside.append(1000 * await ask(_body([next(numbers)], options.side, options)))
            now = await asyncio.to_thread(_rss, home)
            rss = {name: max(now[name], rss.get(name, 0)) for name in now}
        return Beside(alone, beside, await asking, rss)


async def _ask_all(session: aiohttp.ClientSession, url: str, options: Options, bodies: list[bytes]) -> list[float]:
    waiting = iter(bodies)
    latencies: list[float] = []
    headers = {"content-type": "application/json"}

    async def client() -> None:
        for body in waiting:
            began = time.perf_counter()
            async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                answer = await response.text()
                if response.status != 200:
                    raise RuntimeError(f"a request got {response.status}: {answer}")
            latencies.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as clients:
        for _ in range(options.concurrency):
            clients.create_task(client())
    return sorted(latencies)


def _body(numbers: Sequence[int], side: int, options: Options) -> bytes:
    """Asks about images that each have the colour of their number."""
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
            rss = sum(one.memory_info().rss for one in family) / 2**20
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


def _show(options: Options, checkpoints: list[Checkpoint]) -> None:
    names = sorted(checkpoints[0].rss_mib)
    title = (
        f"{options.path}: {options.concurrency} at a time, images of {options.side}x{options.side}, on {Machine.here()}"
    )
    table = Table(
        "requests", "per second", "p50 ms", "p99 ms", *(f"{name} MiB" for name in names), "held MiB", title=title
    )
    last = 0
    for one in checkpoints:
        rate = (one.requests - last) / one.seconds
        last = one.requests
        memory = (f"{one.rss_mib.get(name, 0):.0f}" for name in names)
        held = f"{one.slab_held_mib:.1f}"
        table.add_row(str(one.requests), f"{rate:.1f}", f"{one.p50_ms:.0f}", f"{one.p99_ms:.0f}", *memory, held)
    Console().print(table)


def _show_beside(options: Options, measured: Beside) -> None:
    large = f"{options.beside} of {LARGE_SIDE}x{LARGE_SIDE} in {measured.large_seconds:.1f} s"
    title = f"{options.path}: an image of {options.side}x{options.side} beside {large}, on {Machine.here()}"
    table = Table("", "requests", "p50 ms", "max ms", title=title)
    for name, latencies in (("alone", measured.alone_ms), ("beside", measured.beside_ms)):
        table.add_row(name, str(len(latencies)), f"{median(latencies):.0f}", f"{max(latencies):.0f}")
    Console().print(table, *(f"{name}: {mib:.0f} MiB at most" for name, mib in measured.rss_mib.items()), sep="\n")


if __name__ == "__main__":
    main()
