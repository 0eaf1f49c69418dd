"""The results of `benchmarks/gateway.py` and their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from benchmarks.harness.load.job import LoadResult, Mode
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """The results for one mode and concurrency."""

    mode: Mode
    concurrency: int
    gateway: LoadResult
    executor: LoadResult
    """Results of direct calls of the executor."""
    peers: Mapping[str, LoadResult]
    peer_ratios: Mapping[str, float]
    """The gateway's CPU time for each request, divided by that of each peer: the median of the ratios of all rounds."""

    @property
    def added_p50_ms(self) -> float:
        return self.gateway.p50_ms - self.executor.p50_ms

    @property
    def added_p99_ms(self) -> float:
        return self.gateway.p99_ms - self.executor.p99_ms


@dataclass(frozen=True, slots=True)
class GatewayReport:
    machine: MachineInfo
    pinned: str
    rounds: int
    seconds: float
    """The duration of each measurement."""
    requests: int
    """The number of requests that the gateway served while it was measured."""
    rss_mib: tuple[float, float]
    """The gateway's memory before the first request and after the last."""
    peers_rss_mib: Mapping[str, float]
    """The memory of the peers after their last request."""
    rows: list[GatewayRow]

    def print(self) -> None:
        before, after = self.rss_mib
        note = (
            f"{self.pinned}\n"
            f"median of the less disturbed half of {self.rounds} × {self.seconds:g} s; µs: CPU per request; "
            "busy, others: share of one core used by the gateway and by processes outside the benchmark\n"
            f"memory of the gateway: {before:.0f} MiB before, {after:.0f} MiB after {self.requests:,} requests"
        )
        print_report(self.machine, note, self._gateway_table(), *([self._peers_table()] if self.peers_rss_mib else []))

    def _gateway_table(self) -> Table:
        numbers = ("requests/s", "direct", "p50 ms", "p99 ms", "+p50 ms", "+p99 ms")
        cpu = ("µs gateway", "app host", "executor", "direct", "load", "busy", "others")
        table = create_table(("", "in flight"), numbers + cpu)
        for row in self.rows:
            table.add_row(*_cells(row))
        return table

    def _peers_table(self) -> Table:
        names = [*self.peers_rss_mib]
        table = create_table(
            ("", "in flight"), ("cornserve", *names), "µs of CPU per request (requests/s), Cornserve ÷ peer"
        )
        table.caption = (
            "Cornserve validates each request, records and replays its task, and calls an executor; "
            "the peers forward bytes to an HTTP server, each on the gateway's core while it is measured"
        )
        for row in self.rows:
            cells = [f"{row.gateway.cpu_us['gateway']:.0f} ({row.gateway.rate:.0f})"]
            for name in names:
                peer = row.peers[name]
                cells.append(f"{peer.cpu_us['peer']:.0f} ({peer.rate:.0f}), {row.peer_ratios[name]:.2f}")
            table.add_row(row.mode, str(row.concurrency), *cells)
        memory = (self.rss_mib[1], *self.peers_rss_mib.values())
        table.add_row("MiB", "", *(f"{mib:.0f}" for mib in memory))
        return table


def _cells(row: GatewayRow) -> list[str]:
    gateway, direct = row.gateway, row.executor
    return [
        row.mode,
        *(str(row.concurrency), f"{gateway.rate:.0f}", f"{direct.rate:.0f}"),
        *(f"{gateway.p50_ms:.2f}", f"{gateway.p99_ms:.2f}", f"{row.added_p50_ms:.2f}", f"{row.added_p99_ms:.2f}"),
        f"{gateway.cpu_us['gateway']:.0f}",
        f"{sum(us for name, us in gateway.cpu_us.items() if name.startswith('app host')):.0f}",
        f"{gateway.cpu_us['executor']:.0f}",
        f"{direct.cpu_us['executor']:.0f}",
        f"{gateway.cpu_us['load']:.0f}",
        f"{gateway.busy('gateway'):.0%}",
        f"{max(gateway.others, direct.others):.0%}",
    ]
