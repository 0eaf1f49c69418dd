#!/usr/bin/env python3
"""Measures how soon the work and memory of a cancelled request with ten minutes of audio or video are free.

An instance serves an encoder. The benchmark closes the connection of a request while the encoder decodes and encodes
its medium: once for each moment after the start of the decoding. It then reads the encoder's metrics until they show
neither invocations, nor media that threads decode, nor memory that is allocated for embeddings.

    python -m tests.models.tiny_qwen2audio AUDIO
    benchmarks/media_cancellation.py AUDIO

    python -m tests.models.tiny_qwen25vl VIDEO --width 4 --depth 8
    benchmarks/media_cancellation.py VIDEO --formats MP4
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.media_apps import (
    LONG_FORMATS,
    EncoderMetrics,
    encode_call,
    long_audio,
    long_video,
    reading_metrics,
    serving_encoders,
)
from benchmarks.harness.report import create_table, print_report
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client import audio_part, video_part
from cornserve.client.address import GatewayAddress
from cornserve.client.calls import ApiCall
from cornserve_tasklib.media import Modality

HELD = 'cornserve_transport_slab_bytes{state="held"}'
VIDEO = "MP4"
POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class CancellationRow:
    format: str
    complete_seconds: float
    """The duration of the request if it is not cancelled."""
    decoding_seconds: list[float]
    """The times between the start of the decoding and each cancellation."""
    free_seconds: list[float]
    """The times between each cancellation and the end of all work."""


async def measure(url: str, format: str, seconds: float, delays: list[float]) -> CancellationRow:
    """Cancels a request after each delay."""
    part = video_part(long_video(seconds)) if format == VIDEO else audio_part(long_audio(seconds, format))
    modality = _modality(format)
    call = encode_call(modality, part)
    decoding: list[float] = []
    free: list[float] = []
    async with TimedClient(GatewayAddress.resolve(url)) as client, reading_metrics(url, modality) as metrics:
        for delay in delays:
            if (cancelled := await _cancel(client, metrics, call, modality, delay)) is not None:
                decoding.append(cancelled[0])
                free.append(cancelled[1])
        sample, started = RequestSample(0, 0), time.perf_counter()
        await client.run(call, sample)
        if sample.error is not None:
            raise RuntimeError(f"{format}: {sample.reason or sample.error}")
        return CancellationRow(format, time.perf_counter() - started, decoding, free)


async def _cancel(
    client: TimedClient, metrics: EncoderMetrics, call: ApiCall, modality: Modality, delay: float
) -> tuple[float, float] | None:
    """Returns the seconds from the start of the decoding to the cancellation, and from there to the end of all work.

    Returns None if the request is complete earlier.
    """
    request = asyncio.create_task(client.run(call, RequestSample(0, 0)))
    while not await metrics.sum(f'cornserve_encoder_decoding_items{{modality="{modality}"}}'):
        if request.done():
            return None
        await asyncio.sleep(POLL_SECONDS)
    decoding = time.perf_counter()
    await asyncio.wait({request}, timeout=delay)
    if request.done():
        return None
    request.cancel()
    cancelled = time.perf_counter()
    with suppress(asyncio.CancelledError):
        await request
    media = [f'cornserve_encoder_{state}_items{{modality="{modality}"}}' for state in ("decoding", "pending")]
    while await metrics.sum(HELD, *media, "cornserve_executor_invocations_running"):
        await asyncio.sleep(POLL_SECONDS)
    return cancelled - decoding, time.perf_counter() - cancelled


def _modality(format: str) -> Modality:
    return "video" if format == VIDEO else "audio"


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    encoders: dict[tuple[Modality, ...], Path] = {(_modality(format),): options.model for format in options.formats}
    with tempfile.TemporaryDirectory() as directory, serving_encoders(Path(directory), encoders) as url:
        rows = [asyncio.run(measure(url, format, options.seconds, options.delays)) for format in options.formats]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
        return
    table = create_table(["format"], ["not cancelled s", "cancelled after s", "free after at most ms"])
    for row in rows:
        delays = ", ".join(f"{delay:.2f}" for delay in row.decoding_seconds)
        free = f"{1000 * max(row.free_seconds):.0f}" if row.free_seconds else "complete before"
        table.add_row(row.format, f"{row.complete_seconds:.2f}", delays, free)
    print_report(machine, f"{options.seconds:g} s: {options.model.name}", table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory of a model with an encoder of audio or videos")
    parser.add_argument("--seconds", type=float, default=599.0, help="duration of the media (default: 599)")
    parser.add_argument(
        "--formats",
        nargs="+",
        choices=(*LONG_FORMATS, VIDEO),
        default=[*LONG_FORMATS],
        help=f"{VIDEO}: a video (default: all formats of audio)",
    )
    parser.add_argument(
        "--delays", type=float, nargs="+", default=[0.0, 0.2, 0.5], help="seconds from decoding to cancellation"
    )
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.delays = 30.0, [0.0]
    return options


if __name__ == "__main__":
    main()
