"""`cornserve deploy`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cornserve.cli.console import Problem, emit, stderr
from cornserve.cli.options import Json, Url

if TYPE_CHECKING:
    from cornserve.app.record import AppView
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget


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
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas", min=1, max=64, help="Replicas of each executor. By default, as many as there are; at first 1."
        ),
    ] = None,
    balance: Annotated[
        Literal["least-loaded", "static"],
        typer.Option("--balance", help="How requests are divided among an executor's replicas."),
    ] = "least-loaded",
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share",
            metavar="PATH=WEIGHT",
            help="Of the requests, by path of the model's family: --share monolith=1 --share e-el=3.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, max=1_000_000, help="Seconds to wait until it serves. By default, for ever."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until it serves.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Serve a model, or an app of your own, and show how it starts.

    Deploying under the name of an app that runs replaces it, once the new version is ready.
    """
    from cornserve.client import Client
    from cornserve.client.deploy_target import resolve_target

    target = resolve_target(what, name=name, replicas=replicas, balance=balance, shares=_shares(share or []))
    with Client(url) as client, _saying_that_it_goes_on(target.name):
        view = _deploy_and_wait(client, target, timeout) if wait else client.deploy(target, wait=False)
    if json:
        emit(view)
    if view.phase == "failed":
        _explain(view)
        raise typer.Exit(1)
    if not wait:
        stderr().print(f"{view.name} is being deployed: `cornserve status {view.name}` shows how far it is")


def _shares(settings: list[str]) -> dict[str, float] | None:
    shares: dict[str, float] = {}
    for setting in settings:
        path, _, weight = setting.partition("=")
        try:
            shares[path] = float(weight or 1)
        except ValueError:
            raise Problem(f"a share is PATH=WEIGHT, a name and a number: not {setting!r}") from None
    return shares or None


def _deploy_and_wait(client: Client, target: DeployTarget, timeout: float | None) -> AppView:
    """The app, once it serves or has failed. Raises `Problem` if it comes to neither."""
    from cornserve.cli.deployment import Display
    from cornserve.client import WaitTimeoutError
    from cornserve.client.progress import Progress

    progress = Progress()
    display = Display(progress)
    with display.shown():
        view = deployed = client.deploy(target, wait=False)
        display.show(f"{deployed.name} is accepted, as generation {deployed.generation}")
        try:
            for view in client.follow(deployed, timeout=timeout):
                for line in progress.update(view):
                    display.show(line)
        except WaitTimeoutError as error:
            raise Problem(
                f"{deployed.name} does not serve after {timeout:g} s. It is still being deployed: "
                f"see `cornserve status {deployed.name}` and `cornserve logs {deployed.name}`"
            ) from error
        if view.phase == "serving":
            display.show(f"{view.name} serves. Try: {target.example_command}")
    return view


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
