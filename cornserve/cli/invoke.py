"""`cornserve invoke`."""

from __future__ import annotations

from typing import Annotated

import typer

from cornserve.cli.console import print_json, without_empty_values
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
    """Call an app with its own request type, and print the response as JSON.

    Fields that are null or empty are left out, unless --json is given.
    """
    from cornserve.client import StreamItem

    body = read_json(request, "request")
    with open_client(ctx, url) as client:
        if not stream:
            response = client.invoke(app, body)
            print_json(response if json else without_empty_values(response))
            return
        for event in client.stream(app, body):
            line = event._asdict() if isinstance(event, StreamItem) else {"response": event.response}
            print_json(line if json else without_empty_values(line), lines=True)
