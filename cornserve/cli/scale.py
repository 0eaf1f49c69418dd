"""`cornserve scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, print_json, stderr
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url, complete_app_names

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client


def scale(
    ctx: typer.Context,
    app: Annotated[str, typer.Argument(metavar="APP", help="Name of the app.", autocompletion=complete_app_names)],
    replicas: Annotated[
        int, typer.Argument(metavar="REPLICAS", min=0, max=64, help="Replicas of each executor. 0: park the app.")
    ],
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0,
            max=1_000_000,
            help="Seconds to wait until the replicas are ready. By default, no limit.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the replicas are ready.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Set the number of replicas of each executor of an app. Surplus replicas finish their requests and stop."""
    with open_client(ctx, url) as client:
        view = client.scale(app, replicas)
        if wait:
            view = _until_scaled(client, view, timeout)
    if json:
        print_json(view)
    elif not wait:
        stderr().print(f"{app} is being scaled: see `cornserve status {app}`")


def _until_scaled(client: Client, scaled: AppView, timeout: float | None) -> AppView:
    from cornserve.cli.progress_display import ProgressDisplay
    from cornserve.client import WaitTimeoutError
    from cornserve.client.progress import Progress

    progress = Progress()
    display = ProgressDisplay(progress)
    try:
        with display.shown():
            for view in client.events(scaled.name, timeout=timeout):
                for line in progress.update(view):
                    display.show(line)
                if view.uid != scaled.uid:
                    break
                if view.generation >= scaled.generation and view.is_scaled:
                    display.show(f"{view.name} has {view.spec.replicas} replicas of each executor")
                    return view
    except WaitTimeoutError as error:
        raise CliError(
            f"{scaled.name} is still being scaled after {timeout:g} s: see `cornserve status {scaled.name}`"
        ) from error
    raise CliError(f"{scaled.name} was deleted while it was being scaled: deploy it again with `cornserve deploy`")
