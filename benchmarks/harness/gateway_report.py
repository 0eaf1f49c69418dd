"""What `benchmarks/gateway.py` found, and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from benchmarks.harness.load.job import Mode, Result
from benchmarks.harness.machine import Machine
from benchmarks.harness.report import show, table_of


@dataclass(frozen=True, slots=True)
class Row:
    """What the calm rounds at one setting gave."""

    mode: Mode
    concurrency: int
    gateway: Result
    executor: Result
    """Called directly."""
    peers: Mapping[str, Result]

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
    requests: int
    """That the gateway has answered while it was measured."""
    rss_mib: tuple[float, float]
    """Of the gateway: serving, before the first request, and after the last."""
    peers_rss_mib: Mapping[str, float]
    """After their last request."""
    rows: list[Row]

    def show(self) -> None:
        before, after = self.rss_mib
        note = (
            f"{self.pinned}\n"
            f"median of the calmer half of {self.rounds} × {self.seconds:g} s; µs: CPU per request; busy: the gateway, "
            "others: processes that are not ours, of a core\n"
            f"the gateway's memory: {before:.0f} MiB before, {after:.0f} MiB after {self.requests:,} requests"
        )
        show(self.machine, note, self._own(), *([self._beside_peers()] if self.peers_rss_mib else []))

    def _own(self) -> Table:
        numbers = ("requests/s", "direct", "p50 ms", "p99 ms", "+p50 ms", "+p99 ms")
        cpu = ("µs gateway", "executor", "direct", "load", "busy", "others")
        table = table_of(("", "in flight"), numbers + cpu)
        for row in self.rows:
            table.add_row(*_cells(row))
        return table

    def _beside_peers(self) -> Table:
        names = [*self.peers_rss_mib]
        table = table_of(("", "in flight"), ("cornserve", *names), "µs of CPU per request (requests/s)")
        table.caption = (
            "Cornserve checks each request, records and replays its task, and calls an executor; "
            "the others pass bytes on to an HTTP server, each on the gateway's core while it is measured"
        )
        for row in self.rows:
            results = [(row.gateway, "gateway"), *((row.peers[name], "peer") for name in names)]
            cells = (f"{result.cpu_us[process]:.0f} ({result.rate:.0f})" for result, process in results)
            table.add_row(row.mode, str(row.concurrency), *cells)
        memory = (self.rss_mib[1], *self.peers_rss_mib.values())
        table.add_row("MiB", "", *(f"{mib:.0f}" for mib in memory))
        return table


def _cells(row: Row) -> list[str]:
    through, direct = row.gateway, row.executor
    return [
        row.mode,
        *(str(row.concurrency), f"{through.rate:.0f}", f"{direct.rate:.0f}"),
        *(f"{through.p50_ms:.2f}", f"{through.p99_ms:.2f}", f"{row.added_p50_ms:.2f}", f"{row.added_p99_ms:.2f}"),
        *(f"{through.cpu_us[name]:.0f}" for name in ("gateway", "executor")),
        f"{direct.cpu_us['executor']:.0f}",
        f"{through.cpu_us['load']:.0f}",
        f"{through.busy('gateway'):.0%}",
        f"{max(through.others, direct.others):.0%}",
    ]
