"""`cornserve restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, print_json, stderr
from cornserve.cli.gateway import open_client
from cornserve.cli.options import AppName, Json, Url, WaitTimeout

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client


def restart(
    ctx: typer.Context,
    app: AppName,
    timeout: WaitTimeout = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the new executors serve.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Restart the executors of an app. The running ones serve until the new ones are ready."""
    with open_client(ctx, url) as client:
        view = client.restart(app)
        if wait:
            view = _until_restarted(client, view, timeout)
    if json:
        print_json(view)
    if view.phase == "failed":
        raise CliError(f"{app} failed to start: {view.status.message}")
    if not wait:
        stderr().print(f"{app} is being restarted: see `cornserve status {app}`")


def _until_restarted(client: Client, restarted: AppView, timeout: float | None) -> AppView:
    from cornserve.cli.progress_display import ProgressDisplay

    display, name = ProgressDisplay(), restarted.name
    unfinished = f"{name} is still being restarted after {timeout} s: see `cornserve status {name}`"
    with display.shown():
        *_, view = display.follow(client.follow(restarted, timeout=timeout, on_outage=display.show), unfinished)
        if view.phase != "failed":
            display.show(f"{name} has restarted")
    return view
