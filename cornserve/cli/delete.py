"""`cornserve delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from cornserve.cli.console import print_error, print_json, stdout
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
    from cornserve.client import ApiStatusError

    deleted: list[str] = []
    with open_client(ctx, url) as client:
        for app in apps:
            try:
                client.delete(app)
            except ApiStatusError as error:  # It does not concern the other apps.
                print_error(str(error))
                continue
            deleted.append(app)
            if not json:
                stdout().print(f"{app} deleted")
    if json:
        print_json({"deleted": deleted})
    if deleted != apps:
        raise typer.Exit(1)
