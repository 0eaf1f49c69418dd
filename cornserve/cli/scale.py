"""`cornserve scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import Problem, emit, stderr
from cornserve.cli.options import Json, Url, app_names

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client


def scale(
    app: Annotated[str, typer.Argument(metavar="APP", help="The app's name.", autocompletion=app_names)],
    replicas: Annotated[int, typer.Argument(metavar="REPLICAS", min=1, max=64, help="Of each executor.")],
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, max=1_000_000, help="Seconds to wait until it is done. By default, for ever."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until it is done.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Set how many replicas of each executor an app has. What runs and is wanted stays; what is too much drains."""
    from cornserve.client import Client

    with Client(url) as client:
        view = client.scale(app, replicas)
        if wait:
            view = _until_scaled(client, view, timeout)
    if json:
        emit(view)
    elif not wait:
        stderr().print(f"{app} is being scaled: `cornserve status {app}` shows how far it is")


def _until_scaled(client: Client, scaled: AppView, timeout: float | None) -> AppView:
    from cornserve.cli.deployment import Display
    from cornserve.client import WaitTimeoutError
    from cornserve.client.progress import Progress

    progress = Progress()
    display = Display(progress)
    try:
        with display.shown():
            for view in client.events(scaled.name, timeout=timeout):
                for line in progress.update(view):
                    display.show(line)
                if view.uid != scaled.uid:
                    break
                if view.generation >= scaled.generation and view.is_scaled:
                    display.show(f"{view.name} has {view.spec.replicas} of each executor")
                    return view
    except WaitTimeoutError as error:
        raise Problem(
            f"{scaled.name} is not scaled after {timeout:g} s: see `cornserve status {scaled.name}`"
        ) from error
    raise Problem(f"{scaled.name} was deleted while it was being scaled")
