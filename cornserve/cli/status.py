"""`cornserve status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import emit, stdout
from cornserve.cli.options import Json, Url, app_names

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client

STYLES = {"pending": "yellow", "starting": "yellow", "serving": "green", "failed": "red"}


def status(
    app: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="By default, all apps.", autocompletion=app_names)
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the apps and how far they are; of one app, also its replicas."""
    from cornserve.client import Client

    with Client(url) as client:
        if app is None:
            _all(client, json)
        else:
            _one(client.app(app), json)


def _all(client: Client, json: bool) -> None:
    apps = client.apps()
    if json:
        emit({"url": client.url, "apps": apps})
        return
    say = stdout().print
    say(f"Cornserve at {client.url}")
    if not apps:
        say("No apps: deploy one with `cornserve deploy MODEL-DIRECTORY | FILE.py`")
        return
    say(_table(apps))


def _table(apps: list[AppView]) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in ("app", "phase", "ready", "generation", ""):
        table.add_column(column)
    for app in apps:
        ready = sum(group.ready for group in app.status.groups)
        wanted = sum(group.wanted for group in app.status.groups)
        table.add_row(
            app.name,
            Text(app.phase, style=STYLES[app.phase]),
            f"{ready}/{wanted}" if wanted else "",
            str(app.generation),
            Text(_message(app), overflow="ellipsis", no_wrap=True),
        )
    return table


def _message(app: AppView) -> str:
    route = app.status.route
    meanwhile = (
        f"generation {route.generation} is served meanwhile; " if route and route.generation != app.generation else ""
    )
    return (meanwhile + app.status.message).removesuffix("; ")


def _one(app: AppView, json: bool) -> None:
    from rich.text import Text

    if json:
        emit(app)
        return
    say = stdout().print
    say(Text.assemble((app.name, "bold"), "  ", (app.phase, STYLES[app.phase]), f"  generation {app.generation}"))
    if app.status.message:
        say(Text(app.status.message))
    route = app.status.route
    if route is not None and route.generation != app.generation:
        say(f"generation {route.generation} is served meanwhile")
    say(Text(f"model: {app.spec.model}" if app.spec.model else "from Python source"))
    for group in app.status.groups:
        say(Text.assemble("\n", (group.key, "bold"), f"  {group.ready} of {group.wanted} ready"))
        for replica in group.replicas:
            say(Text(f"  {replica.id}  {replica.state}  {replica.endpoint or ''}  {replica.message}".rstrip()))
    for line in app.status.logs:
        say(Text.assemble(("  | ", "dim"), line))
