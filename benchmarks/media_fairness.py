#!/usr/bin/env python3
"""Measures the latency of small images next to media of ten minutes.

An instance serves an encoder of images and videos, or an encoder of images and another one of audio, without language
models: another executor receives the embeddings. In each round, 64 images are encoded without other requests, and
images while a request with ten minutes of video or audio runs, until it and at least 64 images are complete. All
contents are new.

    python -m tests.models.tiny_qwen25vl IMAGES --width 4 --depth 8
    benchmarks/media_fairness.py IMAGES

    python -m tests.models.tiny_qwen2audio AUDIO
    benchmarks/media_fairness.py IMAGES --audio AUDIO
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.media_apps import encode_call, long_audio_calls, long_video_calls, serving_encoders
from benchmarks.harness.report import create_table, print_report
from cornserve.bench.media_files import image_url
from cornserve.bench.percentiles import percentile
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client.address import GatewayAddress
from cornserve.client.calls import ApiCall
from cornserve.profiler.loads import LoadDriver
from cornserve_tasklib.media import Modality

IMAGES = 64


@dataclass(frozen=True, slots=True)
class FairnessRow:
    concurrency: int
    """Images in flight."""
    alone_ms: list[float]
    """Latencies of the images without other requests, in order."""
    beside_ms: list[float]
    """Latencies of the images next to long media, in order."""
    long_seconds: list[float]
    """The duration of each request with a long medium."""

    @property
    def ratio(self) -> float:
        """The 99th percentile next to long media, relative to that without."""
        return percentile(self.beside_ms, 99) / percentile(self.alone_ms, 99)


def image_calls(side: int, seed: int) -> Iterator[ApiCall]:
    """Yields requests with an image of new content each."""
    random = Random(seed)
    while True:
        yield encode_call("image", {"type": "image_url", "image_url": {"url": image_url(side, side, random)}})


async def measure(url: str, concurrency: int, longs: Iterator[ApiCall], options: argparse.Namespace) -> FairnessRow:
    row = FairnessRow(concurrency, [], [], [])
    async with TimedClient(GatewayAddress.resolve(url)) as client:
        images = LoadDriver(client, image_calls(options.side, concurrency), lambda _: None)
        await send_long(client, next(longs))  # Opens connections, and starts the threads of the encoders.
        await encode_images(images, concurrency)
        for _ in range(options.rounds):
            row.alone_ms.extend(await encode_images(images, concurrency))
            sending = asyncio.create_task(send_long(client, next(longs)))
            row.beside_ms.extend(await encode_images(images, concurrency, sending))
            row.long_seconds.append(await sending)
    row.alone_ms.sort()
    row.beside_ms.sort()
    return row


async def encode_images(
    images: LoadDriver, concurrency: int, beside: asyncio.Task[float] | None = None
) -> Iterator[float]:
    """Encodes at least `IMAGES` images, until the task is done. Returns the latencies in milliseconds."""
    seen = await images.closed_loop(
        concurrency, lambda seen: len(seen.ends) >= IMAGES and (beside is None or beside.done())
    )
    return (1000 * latency for latency in seen.latencies)


async def send_long(client: TimedClient, call: ApiCall) -> float:
    """Returns the seconds that a request with a long medium takes."""
    sample = RequestSample(0, 0)
    started = time.perf_counter()
    await client.run(call, sample)
    if sample.error is not None:
        raise RuntimeError(f"a long medium failed: {sample.reason or sample.error}")
    return time.perf_counter() - started


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    encoders: dict[tuple[Modality, ...], Path]
    if options.audio is None:
        kind, encoders, longs = "video", {("image", "video"): options.images}, long_video_calls(options.seconds)
    else:
        encoders = {("image",): options.images, ("audio",): options.audio}
        kind, longs = "audio", long_audio_calls(options.seconds)
    with tempfile.TemporaryDirectory() as directory, serving_encoders(Path(directory), encoders) as url:
        rows = [asyncio.run(measure(url, concurrency, longs, options)) for concurrency in options.concurrency]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}))
        return
    columns = ("requests", "p50 ms", "p99 ms", "max ms", "p99 ratio")
    table = create_table(["images in flight", "next to"], columns)
    for row in rows:
        long = f"{options.seconds:g} s of {kind}, {sum(row.long_seconds) / len(row.long_seconds):.1f} s each"
        for name, latencies, ratio in (("nothing", row.alone_ms, ""), (long, row.beside_ms, f"{row.ratio:.2f}")):
            figures = (percentile(latencies, 50), percentile(latencies, 99), latencies[-1])
            table.add_row(
                str(row.concurrency), name, str(len(latencies)), *(f"{figure:.1f}" for figure in figures), ratio
            )
    print_report(machine, f"images of {options.side}x{options.side}: {options.images.name}", table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="directory of a model with an encoder of images")
    parser.add_argument("--audio", type=Path, help="directory of a model with an encoder of audio. By default, videos")
    parser.add_argument("--seconds", type=float, default=599.0, help="duration of the long media (default: 599)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--side", type=int, default=224, help="width and height of the images in pixels")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64], metavar="N", help="images in flight")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.concurrency = 2.0, 1, [8]
    return options


if __name__ == "__main__":
    main()
