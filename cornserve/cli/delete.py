"""`cornserve delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from cornserve.cli.console import emit, stdout
from cornserve.cli.options import Json, Url, app_names


def delete(
    apps: Annotated[list[str], typer.Argument(metavar="APP...", help="The apps' names.", autocompletion=app_names)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Stop serving apps. Executors that no other app uses finish their requests and end."""
    from cornserve.client import Client

    with Client(url) as client:
        for app in apps:
            client.delete(app)
            if not json:
                stdout().print(f"{app} is deleted")
    if json:
        emit({"deleted": apps})
