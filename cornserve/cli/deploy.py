"""`cornserve deploy`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import Problem, emit, stderr
from cornserve.cli.options import Json, Url

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.cli.target import Target
    from cornserve.client import Client


def deploy(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py | MODEL", help="Python with an App in it; a model directory; or a Hugging Face id."
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="The app's name. By default, the model's; a file has it in itself.")
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=64, help="Replicas of each executor.")] = 1,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Seconds to wait until it serves. By default, for ever.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until it serves.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Serve a model, or an app of your own, and show how it starts.

    Deploying under the name of an app that runs replaces it, once the new version is ready.
    """
    from cornserve.cli.target import resolve
    from cornserve.client import Client

    target = resolve(what, name=name, replicas=replicas)
    with Client(url) as client, _saying_that_it_goes_on(target.name):
        view = _deploy_and_wait(client, target, timeout) if wait else client.deploy(target.name, target.spec)
    if json:
        emit(view)
    if view.phase == "failed":
        _explain(view)
        raise typer.Exit(1)
    if not wait:
        stderr().print(f"{view.name} is being deployed: `cornserve status {view.name}` shows how far it is")


def _deploy_and_wait(client: Client, target: Target, timeout: float | None) -> AppView:
    """The app, once it serves or has failed. Raises `Problem` if it comes to neither."""
    from cornserve.cli.deployment import Deployment, Display

    deployment = Deployment()
    display = Display(deployment)
    with display.shown():
        deployed = client.deploy(target.name, target.spec)
        display.show(f"{deployed.name} is accepted, as generation {deployed.generation}")
        try:
            for view in client.events(deployed.name, timeout=timeout):
                if view.uid != deployed.uid:
                    break
                for line in deployment.take(view):
                    display.show(line)
                if view.phase == "serving":
                    display.show(f"{view.name} serves. Try: {target.invitation}")
                if view.settled:
                    return view
        except TimeoutError as error:
            raise Problem(
                f"{deployed.name} does not serve after {timeout:g} s. It is still being deployed: "
                f"see `cornserve status {deployed.name}` and `cornserve logs {deployed.name}`"
            ) from error
    raise Problem(f"{deployed.name} was deleted while it was being deployed")


@contextmanager
def _saying_that_it_goes_on(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        stderr().print(
            f"\n{name} is still being deployed: `cornserve status {name}` shows how far it is, "
            f"`cornserve delete {name}` gives it up"
        )
        raise typer.Exit(130) from None


def _explain(view: AppView) -> None:
    from rich.text import Text

    console = stderr()
    for line in view.status.logs:
        console.print(Text.assemble(("  | ", "dim"), line))
    console.print(Text.assemble(("error: ", "bold red"), f"{view.name} does not serve: {view.status.message}"))
    route = view.status.route
    if route is not None:
        console.print(f"Generation {route.generation} serves on.")
