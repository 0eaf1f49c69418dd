"""`cornserve status`."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import print_error, print_json, stdout
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url, complete_app_names

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client

STYLES = {"pending": "yellow", "starting": "yellow", "serving": "green", "parked": "dim", "failed": "red"}


def status(
    ctx: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP]", help="Name of the app. By default, all apps.", autocompletion=complete_app_names
        ),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show all apps and their phases, or one app with its replicas."""
    with open_client(ctx, url) as client:
        if app is None:
            _show_all(client, json)
        else:
            _show_app(client.app(app), json)


def _show_all(client: Client, json: bool) -> None:
    apps, unreadable = client.apps(), client.unreadable_apps()
    if json:
        print_json({"url": client.url, "apps": apps, "unreadable": unreadable})
        return
    print_line = stdout().print
    print_line(f"Cornserve at {client.address.place}")
    for damaged in unreadable:
        print_error(damaged.message)
    if not apps and not unreadable:
        print_line("No apps: deploy one with `cornserve deploy MODEL-DIRECTORY | FILE.py`")
    if apps:
        print_line(_table(apps))


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
    return "; ".join(part for part in (_suspension(app), _older_generation(app), app.status.message) if part)


def _older_generation(app: AppView) -> str:
    """Returns which older generation serves, or an empty text."""
    serving = app.status.serving_generation
    return f"generation {serving} serves" if serving not in (None, app.generation) else ""


def _suspension(app: AppView) -> str:
    """Returns the reason for which the app is suspended, or an empty text."""
    return f"suspended: {app.status.suspended}" if app.status.suspended else ""


def _show_app(app: AppView, json: bool) -> None:
    from rich.text import Text

    if json:
        print_json(app)
        return
    print_line = stdout().print
    print_line(
        Text.assemble((app.name, "bold"), "  ", (app.phase, STYLES[app.phase]), f"  generation {app.generation}")
    )
    if app.status.suspended:
        print_line(Text(f"{_suspension(app)}: correct its code and deploy it again", style="red"))
    if app.status.message:
        print_line(Text(app.status.message))
    if _older_generation(app):
        print_line(f"{_older_generation(app)} until then")
    print_line(Text(f"model: {app.spec.model}" if app.spec.model else "from Python source"))
    for override in app.spec.executors:
        options = " ".join(
            f"{name}={value if isinstance(value, str) else dumps(value)}" for name, value in override.options.items()
        )
        print_line(Text(f"options of {'all executors' if override.name == '*' else override.name}: {options}"))
    for group in app.status.groups:
        print_line(Text.assemble("\n", (group.key, "bold"), f"  {group.ready} of {group.wanted} ready"))
        for replica in group.replicas:
            print_line(Text(f"  {replica.id}  {replica.state}  {replica.endpoint or ''}  {replica.message}".rstrip()))
    for line in app.status.logs:
        print_line(Text.assemble(("  | ", "dim"), line))
