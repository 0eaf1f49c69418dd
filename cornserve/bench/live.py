"""A run while it goes on, on a terminal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table
from rich.text import Text

from cornserve.bench.distribution import Distribution
from cornserve.bench.load import Load

if TYPE_CHECKING:
    from rich.console import Console

REFRESH_SECONDS = 0.5
"""Drawing takes time that the load has to wait for."""


async def watch(load: Load, console: Console) -> None:
    if not console.is_terminal:
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(_now(load), refresh=True)


def _now(load: Load) -> Table:
    tally, seconds = load.tally, load.now()
    table = Table.grid(padding=(0, 2))
    table.add_row(
        Text(f"{seconds:6.1f} s", style="dim"),
        Text(f"{tally.in_flight} in flight"),
        Text(f"{len(tally.samples)} answered", style="green"),
        Text(f"{tally.failed} failed", style="red" if tally.failed else "dim"),
        Text(f"{len(tally.samples) / seconds:.1f} requests/s"),
        Text(f"{tally.tokens / seconds:.0f} tokens/s" if tally.tokens else ""),
    )
    for name, seen in (
        ("TTFT", Distribution.of(it.ttft for it in tally.recent if it.ttft is not None)),
        ("TPOT", Distribution.of(it.tpot for it in tally.recent if it.tpot is not None)),
        ("end to end", Distribution.of(it.latency for it in tally.recent)),
    ):
        if seen is not None:
            values = (f"p50 {seen.p50:.0f} ms", f"p95 {seen.p95:.0f} ms", f"p99 {seen.p99:.0f} ms")
            table.add_row(Text(name, style="cyan"), *values)
    return table
