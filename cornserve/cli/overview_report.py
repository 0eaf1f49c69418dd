"""The live figures of all apps, for `cornserve status --watch`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cornserve.cli.console import print_json, stdout

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cornserve.app.overview import AppFigures, Overview, SecondsPercentiles
    from cornserve.client import Client

WATCH_SECONDS: Final = 2.0

COLUMNS: Final = ("app", "phase", "ready", "requests/s", "errors/s", "running", "TTFT p90", "TBT p90", "")


def watch_overview(client: Client, *, json: bool) -> None:
    """Shows the figures of all apps every two seconds, until the user interrupts."""
    from rich.live import Live

    console = stdout()
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            overview = client.overview()
            if json:
                print_json(overview, lines=True)
            elif console.is_terminal:
                live.update(overview_report(overview), refresh=True)
            else:
                console.print(overview_report(overview))
            time.sleep(WATCH_SECONDS)


def overview_report(overview: Overview) -> RenderableType:
    """Returns a table of the apps, and what needs attention."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from cornserve.cli.app_report import STYLES

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in COLUMNS:
        table.add_column(column)
    for app in overview.apps:
        table.add_row(app.name, Text(app.phase, style=STYLES[app.phase]), *_cells(app))
    problems = [
        Text(f"{each.severity}: {each.app or 'instance'}: {each.message}: {each.action}", style="yellow")
        for each in overview.attention
    ]
    return Group(table, *problems)


def _cells(app: AppFigures) -> list[str]:
    ready = f"{app.ready}/{app.wanted}" if app.wanted else ""
    rates = (f"{app.requests_per_second:.3g}", f"{app.errors_per_second:.3g}", str(app.running))
    targets = (f"{each.target} {each.attainment:.0%}" for each in app.targets if each.attainment is not None)
    return [ready, *rates, _seconds(app.ttft_seconds), _seconds(app.tbt_seconds), ", ".join(targets)]


def _seconds(percentiles: SecondsPercentiles | None) -> str:
    return "" if percentiles is None else f"{percentiles.p90:.3g} s"
