"""`cornserve invoke`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cornserve.cli.console import CliError, print_json
from cornserve.cli.gateway import open_client
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

    body = _read(request)
    with open_client(ctx, url) as client:
        if not stream:
            print_json(client.invoke(app, body))
            return
        for event in client.stream(app, body):
            print_json(event._asdict() if isinstance(event, StreamItem) else {"response": event.response}, lines=True)


def _read(request: str) -> Any:
    from pydantic_core import from_json

    try:
        match request[:1]:
            case "@":
                text = Path(request[1:]).expanduser().read_text()
            case "-" if request == "-":
                text = sys.stdin.read()
            case _:
                text = request
        return from_json(
            text.encode(errors="surrogateescape")
        )  # Python decodes command-line arguments with surrogateescape.
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliError(f"cannot read the request {request[:80]!r}: {reason}: give JSON, @FILE or -") from error
    except ValueError as error:
        raise CliError(f"the request is not valid JSON: {error}") from error
