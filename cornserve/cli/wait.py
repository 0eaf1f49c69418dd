"""`cornserve wait`."""

from __future__ import annotations

from typing import Annotated

import typer

from cornserve.cli.console import print_json
from cornserve.cli.gateway import open_client
from cornserve.cli.options import Json, Url, WaitTimeout, complete_app_names
from cornserve.cli.replica_wait import wait_for_replicas


def wait(
    ctx: typer.Context,
    app: Annotated[str, typer.Argument(metavar="APP", help="Name of the app.", autocompletion=complete_app_names)],
    timeout: WaitTimeout = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Wait until all replicas of an app are ready.

    `cornserve deploy` returns when the app serves, which needs one replica of each executor. The exit status is 1 if
    the app has failed or after the timeout.
    """
    with open_client(ctx, url) as client:
        view = wait_for_replicas(client, client.app(app), timeout, failure="has failed")
    if json:
        print_json(view)
