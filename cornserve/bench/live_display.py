"""Shows a running measurement on a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table
from rich.text import Text

from cornserve.bench.load_generator import LoadGenerator
from cornserve.bench.percentiles import Percentiles
from cornserve.bench.statistics import RunStatistics
from cornserve_tasklib.media import MODALITIES

if TYPE_CHECKING:
    from rich.console import Console

REFRESH_SECONDS = 0.5
"""Rendering blocks the load generator, so it must be rare."""


async def show_progress(load: LoadGenerator, console: Console) -> None:
    if not console.is_terminal:
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(_render(load), refresh=True)


def _render(load: LoadGenerator) -> Table:
    statistics, seconds = load.statistics, load.now()
    table = Table.grid(padding=(0, 2))
    table.add_row(
        Text(f"{seconds:6.1f} s", style="dim"),
        Text(f"{statistics.in_flight} in flight"),
        Text(f"{len(statistics.samples)} answered", style="green"),
        Text(f"{statistics.failed} failed", style="red" if statistics.failed else "dim"),
        Text(f"{len(statistics.samples) / seconds:.1f} requests/s"),
        Text(f"{statistics.tokens / seconds:.0f} tokens/s" if statistics.tokens else ""),
    )
    latencies = (
        ("TTFT", Percentiles.from_seconds(sample.ttft for sample in statistics.recent if sample.ttft is not None)),
        ("TPOT", Percentiles.from_seconds(sample.tpot for sample in statistics.recent if sample.tpot is not None)),
        ("end to end", Percentiles.from_seconds(sample.latency for sample in statistics.recent)),
        *_latencies_by_modality(statistics),
    )
    for name, percentiles in latencies:
        if percentiles is not None:
            values = (f"p50 {percentiles.p50:.0f} ms", f"p95 {percentiles.p95:.0f} ms", f"p99 {percentiles.p99:.0f} ms")
            table.add_row(Text(name, style="cyan"), *values)
    return table


def _latencies_by_modality(statistics: RunStatistics) -> Iterator[tuple[str, Percentiles | None]]:
    """Yields the latencies of the recent requests with media."""
    for modality in MODALITIES:
        latencies = [sample.latency for sample in statistics.recent if modality in sample.media]
        yield f"with {modality}", Percentiles.from_seconds(latencies)
