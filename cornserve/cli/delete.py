"""`cornserve delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from cornserve.cli.console import print_json, stdout
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url, complete_app_names


def delete(
    ctx: typer.Context,
    apps: Annotated[
        list[str], typer.Argument(metavar="APP...", help="Names of the apps.", autocompletion=complete_app_names)
    ],
    url: Url = None,
    json: Json = False,
) -> None:
    """Stop serving apps. Executors that no other app uses finish their requests and stop."""
    with open_client(ctx, url) as client:
        for app in apps:
            client.delete(app)
            if not json:
                stdout().print(f"{app} deleted")
    if json:
        print_json({"deleted": apps})
