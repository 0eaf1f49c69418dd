"""`cornserve events`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import local_time, print_json, stdout
from cornserve.cli.gateway import open_client
from cornserve.cli.options import AppName, Json, Url

if TYPE_CHECKING:
    from cornserve.app.event import AppEvent

FOLLOW_SECONDS = 1.0


def events(
    ctx: typer.Context,
    app: AppName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events as they occur, until Ctrl-C.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show what has happened to an app and its executors.

    On Kubernetes, these are the Events of its objects, which the cluster keeps for an hour. On one machine,
    they are the last exits of the app's executors, with their reasons, and the current state.
    """
    with open_client(ctx, url) as client:
        seen = client.history(app)
        if json and not follow:
            print_json({"events": seen})
            return
        _print(seen, json)
        try:
            while follow:
                time.sleep(FOLLOW_SECONDS)
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
