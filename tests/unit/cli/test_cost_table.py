"""`cornserve status --costs` prints a row for each app and executor."""

from __future__ import annotations

import io

from rich.console import Console

from cornserve.app.costs import AppCost, CostReport, StageCost
from cornserve.app.overview import ReadGateways
from cornserve.cli.cost_table import cost_table


def _app(name: str, share: float, dollars: float | None) -> AppCost:
    stage = StageCost(
        group="g", executor="llm", compute_seconds=1, share=share, gpu_seconds=3600 * share, dollars=dollars
    )
    return AppCost(app=name, gpu_seconds=3600 * share, dollars=dollars, stages=[stage])


def _text(*apps: AppCost) -> list[list[str]]:
    dollars = [app.dollars for app in apps if app.dollars is not None]
    total = sum(dollars) if len(dollars) == len(apps) else None
    report = CostReport(seconds=3600, gateways=ReadGateways(), gpu_seconds=3600, dollars=total, apps=list(apps))
    console = Console(file=io.StringIO(), width=100)
    console.print(cost_table(report))
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_apps_have_their_executors_and_their_sum() -> None:
    assert _text(_app("chat", 0.75, 1.5), _app("rare", 0.25, 0.5)) == [
        ["app", "executor", "share", "GPU", "seconds", "dollars"],
        ["chat", "2,700", "1.5000"],
        ["llm", "75%", "2,700", "1.5000"],
        ["rare", "900", "0.5000"],
        ["llm", "25%", "900", "0.5000"],
        ["all", "apps", "3,600", "2.0000"],
    ]


def test_unknown_prices_are_named() -> None:
    assert _text(_app("chat", 1, None))[1:] == [["chat", "3,600", "unknown"], ["llm", "100%", "3,600", "unknown"]]
