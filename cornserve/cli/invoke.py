"""`cornserve invoke`."""

from __future__ import annotations

from typing import Annotated

import typer

from cornserve.cli.console import print_json
from cornserve.cli.gateway import open_client
from cornserve.cli.json_argument import read_json
from cornserve.cli.options import AppName, Json, Url


def invoke(
    ctx: typer.Context,
    app: AppName,
    request: Annotated[
        str, typer.Argument(metavar="JSON | @FILE | -", help="The request, a file with it, or - for standard input.")
    ],
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the items of the response's streams as JSON lines, as they arrive.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Call an app with its own request type, and print the response as JSON."""
    from cornserve.client import StreamItem

    body = read_json(request, "request")
    with open_client(ctx, url) as client:
        if not stream:
            print_json(client.invoke(app, body))
            return
        for event in client.stream(app, body):
            print_json(event._asdict() if isinstance(event, StreamItem) else {"response": event.response}, lines=True)
