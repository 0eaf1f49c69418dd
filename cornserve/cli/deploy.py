"""`cornserve deploy`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from json import loads
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cornserve.cli.console import CliError, print_json, stderr
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url

if TYPE_CHECKING:
    from pydantic import JsonValue

    from cornserve.app.record import AppView
    from cornserve.client import Client
    from cornserve.client.deploy_target import DeployTarget


def deploy(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py | MODEL", help="A Python file with an App, a model directory, or a Hugging Face id."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the app. By default, the name of the model. A Python file contains the name."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=1,
            max=64,
            help="Replicas of each executor. By default, 1 for a new app, else the current number.",
        ),
    ] = None,
    balance: Annotated[
        Literal["least-loaded", "static"],
        typer.Option("--balance", help="How requests are distributed among the replicas of an executor."),
    ] = "least-loaded",
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share",
            metavar="PATH=WEIGHT",
            help="Share of the requests for a path of the model's family: --share monolith=1 --share e-el=3.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="Option of the model's engine: --option max_model_len=32768 --option llm.seed=7 (one executor).",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0, max=1_000_000, help="Seconds to wait until the app serves. By default, no limit."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the app serves.")] = True,
    url: Url = None,
    json: Json = False,
) -> None:
    """Serve a model or an app, and show its progress while it starts.

    If an app with this name exists, the new generation replaces the current one as soon as it is ready.
    """
    from cornserve.client.deploy_target import resolve_target

    resolved = resolve_target(
        target,
        name=name,
        replicas=replicas,
        balance=balance,
        shares=_shares(share or []),
        options=_options(option or []),
    )
    with open_client(ctx, url) as client, _hint_on_interrupt(resolved.name):
        view = _deploy_and_wait(client, resolved, timeout) if wait else client.deploy(resolved, wait=False)
    if json:
        print_json(view)
    if view.phase == "failed":
        _print_failure(view)
        raise typer.Exit(1)
    if not wait:
        stderr().print(f"{view.name} is being deployed: see `cornserve status {view.name}`")


def _shares(settings: list[str]) -> dict[str, float] | None:
    shares: dict[str, float] = {}
    for setting in settings:
        path, _, weight = setting.partition("=")
        try:
            shares[path] = float(weight or 1)
        except ValueError:
            raise CliError(f"{setting!r} is not a valid share: give PATH=WEIGHT, such as e-el=3") from None
    return shares or None


def _options(settings: list[str]) -> dict[str, JsonValue]:
    """Parses values that are JSON, such as numbers; others are texts."""
    options: dict[str, JsonValue] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not (name and separator):
            raise CliError(f"{setting!r} is not a valid option: give NAME=VALUE, such as max_model_len=32768")
        try:
            options[name] = loads(value)
        except ValueError:
            options[name] = value
    return options


def _deploy_and_wait(client: Client, target: DeployTarget, timeout: float | None) -> AppView:
    """Returns the app when it serves or has failed. Raises `CliError` after the timeout."""
    from cornserve.cli.progress_display import ProgressDisplay
    from cornserve.client import WaitTimeoutError
    from cornserve.client.progress import Progress

    progress = Progress()
    display = ProgressDisplay(progress)
    with display.shown():
        view = deployed = client.deploy(target, wait=False)
        display.show(f"{deployed.name} accepted as generation {deployed.generation}")
        try:
            for view in client.follow(deployed, timeout=timeout):
                for line in progress.update(view):
                    display.show(line)
        except WaitTimeoutError as error:
            raise CliError(
                f"{deployed.name} does not serve after {timeout:g} s, and is still being deployed: "
                f"see `cornserve status {deployed.name}` and `cornserve logs {deployed.name}`"
            ) from error
        if view.phase == "serving":
            display.show(f"{view.name} serves. Try: {target.example_command}")
    return view


@contextmanager
def _hint_on_interrupt(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        stderr().print(
            f"\n{name} is still being deployed: see `cornserve status {name}`, or cancel it with "
            f"`cornserve delete {name}`"
        )
        raise typer.Exit(130) from None


def _print_failure(view: AppView) -> None:
    from rich.text import Text

    console = stderr()
    for line in view.status.logs:
        console.print(Text.assemble(("  | ", "dim"), line))
    console.print(Text.assemble(("error: ", "bold red"), f"{view.name} failed to start: {view.status.message}"))
    serving = view.status.serving_generation
    if serving is not None:
        console.print(f"Generation {serving} continues to serve.")
