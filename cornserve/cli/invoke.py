"""`cornserve invoke`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cornserve.cli.console import Problem, emit
from cornserve.cli.options import AppName, Json, Url


def invoke(
    app: AppName,
    request: Annotated[str, typer.Argument(metavar="JSON | @FILE | -", help="The app's request; -: standard input.")],
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the items of its streams as they arrive, as JSON lines.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Call an app with its own request, and print its response as JSON."""
    from cornserve.client import Client, StreamItem

    body = _read(request)
    with Client(url) as client:
        if not stream:
            emit(client.invoke(app, body))
            return
        for event in client.stream(app, body):
            emit(event._asdict() if isinstance(event, StreamItem) else {"response": event.response}, lines=True)


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
        return from_json(text.encode(errors="surrogateescape"))  # which is how bytes that are no UTF-8 come here
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"cannot read the request: {error}") from error
    except ValueError as error:
        raise Problem(f"the request is no JSON: {error}") from error
