"""`cornserve restart`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cornserve.cli.console import CliError, print_json, stderr
from cornserve.cli.gateway import open_client
from cornserve.cli.options import AppName, Json, Url, WaitTimeout

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client
    from cornserve.client.deadline import Deadline


MOVE_SECONDS: Final = 10.0
"""The time in which running responses move to the new executors. The others end on the old ones."""

POLL_SECONDS: Final = 0.2


def restart(
    ctx: typer.Context,
    app: AppName,
    executor: Annotated[
        list[str] | None,
        typer.Option("--executor", metavar="NAME", help="Restart only this executor. Can be repeated."),
    ] = None,
    timeout: WaitTimeout = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the new executors serve.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Restart the executors of an app, or some of them. The running ones serve until the new ones are ready.

    They move responses to the new ones where these continue them exactly, and finish their other requests.
    """
    from cornserve.client.deadline import Deadline

    with open_client(ctx, url) as client:
        view = client.restart(app, executor or [])
        moved_before = view.moved_streams
        if wait:
            deadline = Deadline(timeout)
            view = _until_restarted(client, view, deadline)
            if view.phase == "serving":
                view = _until_moved(client, view, Deadline(min(MOVE_SECONDS, deadline.left)))
    if json:
        print_json(view)
    if view.phase == "failed":
        raise CliError(f"{app} failed to start: {view.status.message}")
    if not wait:
        stderr().print(f"{app} is being restarted: see `cornserve status {app}`")
    # The replica of the gateway that answers later may have counted fewer.
    if (moved := view.moved_streams - moved_before) > 0:
        stderr().print(f"{moved} running responses moved to the new executors")
    if view.left_invocations:
        stderr().print(f"{view.left_invocations} running requests end on the old executors")


def _until_restarted(client: Client, restarted: AppView, deadline: Deadline) -> AppView:
    from cornserve.cli.progress_display import ProgressDisplay

    display, name = ProgressDisplay(), restarted.name
    unfinished = f"{name} is still being restarted after {deadline.seconds:g} s: see `cornserve status {name}`"
    with display.shown():
        *_, view = display.follow(client.follow(restarted, timeout=deadline.limit, on_outage=display.show), unfinished)
        if view.phase != "failed":
            display.show(f"{name} has restarted")
    return view


def _until_moved(client: Client, view: AppView, deadline: Deadline) -> AppView:
    """Returns the app when no request runs on the old executors, or at the deadline."""
    view = client.app(view.name)
    while view.left_invocations and not deadline.is_over:
        time.sleep(POLL_SECONDS)
        view = client.app(view.name)
    return view
