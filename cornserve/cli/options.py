"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cornserve.home import Home


def app_names(incomplete: str) -> list[str]:
    """For shell completion, which stays silent when there is nothing to say."""
    from cornserve.client import Client, ClientError

    try:
        with Client(retries=0) as client:
            return [app.name for app in client.apps() if app.name.startswith(incomplete)]
    except ClientError:
        return []


AppName = Annotated[str, typer.Argument(metavar="APP", help="The app's name.", autocompletion=app_names)]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="CORNSERVE_URL",
        help="The gateway. By default, the one that runs on this machine.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

HomePath = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="CORNSERVE_HOME",
        file_okay=False,
        help="Where state, logs and models are kept. By default, your data directory.",
        show_default=False,
    ),
]


def home_at(path: Path | None) -> Home:
    from cornserve.home import Home

    return Home.default() if path is None else Home(path.expanduser().absolute())
