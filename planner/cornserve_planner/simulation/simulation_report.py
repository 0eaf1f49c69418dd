"""The text output of `cornserve simulate`."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from cornserve_planner.simulation.simulation_result import LATENCIES, SimulationResult

TITLES = {"ttft": "first output", "tbt": "between tokens", "e2e": "complete"}

VISIBLE_INTERVAL = 1e-4
"""Intervals that are shorter than this part of the value are not shown."""


def simulation_report(result: SimulationResult) -> RenderableType:
    document = result.as_document()
    parts: list[RenderableType] = [_summary(document), "", _latencies(document)]
    if document["attainment"]:
        targets = result.request.settings
        parts += [
            "",
            *(_attainment(name, share, getattr(targets, name)) for name, share in document["attainment"].items()),
        ]
    if document["changes"]:
        parts += ["", _changes(document)]
    if document["capacities"]:
        parts += ["", *(_capacity(name, each) for name, each in document["capacities"].items())]
    if document["scaled"]:
        parts += ["", _scaled(document)]
    return Group(*parts, "", _executors(document), "", _paths(document))


def _summary(document: dict[str, Any]) -> str:
    refused = sum(document["refused"].values())
    counts = f"{document['completed']:,} of {document['requests']:,} requests completed"
    lines = [f"{counts} in {document['seconds']:.4g} simulated seconds: {document['rate']:.4g} requests/s"]
    if refused:
        reasons = ", ".join(f"{count:,} for {name}" for name, count in document["refused"].items())
        lines.append(f"{refused:,} refused: {reasons}")
    if document["failed"]:
        lines.append(f"{document['failed']:,} failed with their executors")
    hours = " + ".join(f"{hours:.4g} {name}" for name, hours in document["gpu_hours"].items())
    cost = "" if document["dollars"] is None else f", ${document['dollars']:.4g}"
    lines.append(f"GPU-hours: {hours}{cost}")
    return "\n".join(lines)


def _latencies(document: dict[str, Any]) -> Table:
    table = Table("type", "latency", "requests", "mean", "p50", "p90", "p95", "p99", box=None, title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for kind, latencies in document["latency"].items():
        for name in LATENCIES:
            found = latencies[name]
            if found is not None and (name == "e2e" or found["mean"] != latencies["e2e"]["mean"]):
                cells = (_statistic(found[each]) for each in ("mean", "p50", "p90", "p95", "p99"))
                table.add_row(kind, TITLES[name], f"{found['requests']:,}", *cells)
    return table


def _statistic(found: dict[str, float | None]) -> str:
    """Returns a value in seconds, with half of its interval."""
    value, low, high = found["value"], found["low"], found["high"]
    if low is None or high is None or high - low < VISIBLE_INTERVAL * (value or 0.0):
        return f"{value:.4g} s"
    return f"{value:.4g} ± {(high - low) / 2:.2g} s"


def _attainment(name: str, share: float, target: float) -> str:
    return f"{share:.2%} of the admitted requests met the {name} target of {target:g} s"


def _capacity(name: str, found: dict[str, float | None]) -> str:
    tokens = "" if found["tokens"] is None else f", {found['tokens']:.4g} tokens/s"
    return f"A replica of {name} takes {found['requests']:.4g} requests/s{tokens}"


def _executors(document: dict[str, Any]) -> Table:
    table = Table("executor", "replicas", "utilization", "p50", "p99", "simulated by", box=None)
    for name, executor in document["executors"].items():
        stage = document["stages"].get(name)
        times = ("–", "–") if stage is None else (_statistic(stage["p50"]), _statistic(stage["p99"]))
        preempted = f", {executor['preemptions']:,} preemptions" if executor["preemptions"] else ""
        table.add_row(
            name, f"{executor['replicas']:,}", f"{executor['utilization']:.1%}", *times, executor["model"] + preempted
        )
    return table


def _changes(document: dict[str, Any]) -> Table:
    table = Table("at", "cells", "because", box=None)
    for change in document["changes"]:
        table.add_row(f"{change['seconds']:,.0f} s", change["cells"], change["reason"])
    return table


def _scaled(document: dict[str, Any]) -> Table:
    table = Table("at", "executor", "replicas", "because", box=None)
    for change in document["scaled"]:
        seconds = f"{change['seconds']:,.0f} s"
        table.add_row(seconds, change["executor"], f"{change['replicas']:,}", change["reason"])
    return table


def _paths(document: dict[str, Any]) -> Table:
    table = Table("type", "cell", "path", "requests/s", box=None)
    for path in document["paths"]:
        table.add_row(
            path["type"],
            f"{path['cell_gpus']} GPU{'' if path['cell_gpus'] == 1 else 's'}",
            " → ".join(path["path"]),
            f"{path['rate']:.4g}",
        )
    return table
