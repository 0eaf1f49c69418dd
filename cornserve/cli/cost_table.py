"""The costs of apps and their executors, for `cornserve status --costs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve.cli.console import print_json, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from cornserve.app.costs import CostReport
    from cornserve.client import Client


def show_costs(client: Client, app: str | None, *, json: bool) -> None:
    """Shows the costs of the last hour, of all apps or of one."""
    report = client.costs()
    if app is not None:
        client.app(app)  # An unknown app is an error.
        report = report.model_copy(update={"apps": [each for each in report.apps if each.app == app]})
    if json:
        print_json(report)
        return
    console = stdout()
    console.print(f"Costs of the last {report.seconds / 60:.3g} minutes")
    console.print(cost_table(report) if report.apps else "No replica has run.")


def cost_table(report: CostReport) -> Table:
    """Returns a row for each app, one for each of its executors, and the sum."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in ("app", "executor", "share"):
        table.add_column(column)
    for column in ("GPU seconds", "dollars"):
        table.add_column(column, justify="right")
    for app in report.apps:
        table.add_row(app.app, "", "", _number(app.gpu_seconds), _dollars(app.dollars))
        for stage in app.stages:
            share = f"{stage.share:.0%}"
            table.add_row("", stage.executor or stage.group, share, _number(stage.gpu_seconds), _dollars(stage.dollars))
    if len(report.apps) > 1:
        table.add_row("all apps", "", "", _number(report.gpu_seconds), _dollars(report.dollars), style="bold")
    return table


def _number(seconds: float) -> str:
    return f"{seconds:,.0f}"


def _dollars(dollars: float | None) -> str:
    return "unknown" if dollars is None else f"{dollars:,.4f}"
