"""Arguments and options of several commands."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import expanded
from cornserve.cli.gateway import open_client

if TYPE_CHECKING:
    from cornserve.home import Home


def complete_app_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the names of apps in a shell. Ignores errors."""
    from cornserve.cli.console import CliError
    from cornserve.client import ClientError

    try:
        with open_client(ctx, ctx.params.get("url"), retries=0) as client:
            return [app.name for app in client.apps() if app.name.startswith(incomplete)]
    except (ClientError, CliError, typer.BadParameter):
        return []


def complete_contexts(incomplete: str) -> list[str]:
    """Completes the names of the kubeconfig's contexts in a shell."""
    from cornserve.kubernetes.contexts import context_names

    return [name for name in context_names() if name.startswith(incomplete)]


AppName = Annotated[str, typer.Argument(metavar="APP", help="Name of the app.", autocompletion=complete_app_names)]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="CORNSERVE_URL",
        help="URL of the gateway. By default, the gateway on this machine.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def check_rate(rate: float | None) -> float | None:
    """Returns the value of an option. Raises `BadParameter` if it is negative or not finite."""
    if rate is not None and not (math.isfinite(rate) and rate >= 0):
        raise typer.BadParameter(f"{rate:g} is not a rate: give requests per second, such as 20 or 0.5")
    return rate


DEFAULT_BUDGET = "10m"

BUDGET = typer.Option("--budget", metavar="TIME", help="Device time of measurements, such as 90s, 10m or 1h.")

WaitTimeout = Annotated[
    float | None, typer.Option("--timeout", min=0, max=1_000_000, help="Seconds to wait. By default, no limit.")
]

HomePath = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="CORNSERVE_HOME",
        file_okay=False,
        help="Directory for state, logs and models. By default, your data directory.",
        show_default=False,
    ),
]


def home_directory(path: Path | None) -> Home:
    from cornserve.home import Home

    return Home.default() if path is None else Home(expanded(path).absolute())
