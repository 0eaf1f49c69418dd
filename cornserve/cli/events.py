"""Shows the events of an app, for `cornserve status --events`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from cornserve.cli.console import local_time, print_json, stdout

if TYPE_CHECKING:
    from cornserve.app.event import AppEvent
    from cornserve.client import Client

WATCH_SECONDS = 1.0


def show_events(client: Client, app: str, *, watch: bool, json: bool) -> None:
    """Prints the events of an app. With `watch`, also new ones until the user interrupts."""
    seen = client.history(app)
    if json and not watch:
        print_json({"events": seen})
        return
    _print(seen, json)
    try:
        while watch:
            time.sleep(WATCH_SECONDS)
            current = client.history(app)
            _print([event for event in current if event not in seen], json)
            seen = current
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _print(events: list[AppEvent], json: bool) -> None:
    from rich.text import Text

    for event in events:
        if json:
            print_json(event, lines=True)
            continue
        when = local_time(event.time) if event.time else f"{'now':<19}"
        count = f" ({event.count} times)" if event.count > 1 else ""
        style = "yellow" if event.type == "Warning" else ""
        stdout().print(
            Text.assemble(
                (when, "dim"), "  ", (f"{event.reason:<18}", style), f"  {event.object}  {event.message}{count}"
            )
        )
