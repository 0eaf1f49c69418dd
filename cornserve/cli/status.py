"""`cornserve status`."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, print_error, print_json, stdout
from cornserve.cli.cost_table import show_costs
from cornserve.cli.events import show_events
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url, complete_app_names
from cornserve.cli.overview_report import watch_overview

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client


def status(
    ctx: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP]", help="Name of the app. By default, all apps.", autocompletion=complete_app_names
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Show the app after each change; with --events, new events. Without APP: the rates, latencies and "
            "errors of all apps, every two seconds. With --json: one line each.",
        ),
    ] = False,
    events: Annotated[
        bool,
        typer.Option(
            "--events",
            help="Show the events of the app and its executors. On Kubernetes, these are the Events of its objects, "
            "which the cluster keeps for an hour. On one machine, they are the last exits of the app's executors, with "
            "their reasons, and the current state.",
        ),
    ] = False,
    costs: Annotated[
        bool,
        typer.Option(
            "--costs",
            help="Show the GPU seconds and the dollars of the last hour, by app and executor. Executors that apps "
            "share are divided by the seconds that their invocations took.",
        ),
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show all apps and their phases, or one app with its cells and replicas."""
    if app is None and events:
        raise CliError("--events: give the name of the app")
    if costs and (events or watch):
        raise CliError("--costs: remove --events and --watch")
    with open_client(ctx, url) as client:
        if costs:
            show_costs(client, app, json=json)
        elif app is not None and events:
            show_events(client, app, watch=watch, json=json)
        elif app is not None and watch:
            _watch(client, app, json)
        elif app is None and watch:
            watch_overview(client, json=json)
        elif app is None:
            _show_all(client, json)
        else:
            _show_app(client.app(app, memory=True), json)


def _show_all(client: Client, json: bool) -> None:
    apps, unreadable = client.apps(), client.unreadable_apps()
    if json:
        print_json({"url": client.url, "apps": apps, "unreadable": unreadable})
        return
    print_line = stdout().print
    print_line(f"Cornserve at {client.address.place}")
    if slots := _slots(client):
        print_line(f"Slots: {slots}")
    for damaged in unreadable:
        print_error(damaged.message)
    if not apps and not unreadable:
        print_line("No apps: deploy one with `cornserve deploy MODEL-DIRECTORY | FILE.py`")
    if apps:
        print_line(_table(apps))


def _slots(client: Client) -> str:
    """Returns the slots of the local instance, if the client calls it."""
    from cornserve.cli.local_slots import describe_slots
    from cornserve.home import Home
    from cornserve.instance import Instance

    home = Home.default()
    try:
        instance = Instance.find_running(home)
    except OSError:
        return ""
    return describe_slots(home, instance) if instance is not None and instance.url == client.url else ""


def _table(apps: list[AppView]) -> object:
    from rich.table import Table
    from rich.text import Text

    from cornserve.cli.app_report import STYLES, app_message

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
            Text(app_message(app), overflow="ellipsis", no_wrap=True),
        )
    return table


def _show_app(app: AppView, json: bool) -> None:
    from cornserve.cli.app_report import app_report

    if json:
        print_json(app)
    else:
        stdout().print(app_report(app, datetime.now(UTC)))


def _watch(client: Client, name: str, json: bool) -> None:
    """Shows the app now and after each change, until it is deleted or the user interrupts."""
    from rich.live import Live

    from cornserve.cli.app_report import app_report

    console = stdout()
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        for app in client.events(name):
            if json:
                print_json(app, lines=True)
            elif console.is_terminal:
                live.update(app_report(app, datetime.now(UTC)), refresh=True)
            else:
                console.print(app_report(app, datetime.now(UTC)))
