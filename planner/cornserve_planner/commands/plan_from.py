"""`cornserve plan from APP`: derives the model from an app.

The planner imports no other package of Cornserve: a program that can read apps sets the object of the command's context
to a function that does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cornserve_planner.errors import PlannerError
from cornserve_planner.terminal import require_libraries

AppModelReader = Callable[[typer.Context, str, str | None], str]
"""Takes the command's context, an app and the URL of a gateway. Returns the JSON of a model document."""


def from_app(
    context: typer.Context,
    app: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py | MODEL | APP",
            help="A Python file, a model directory, a Hugging Face id, or the name of a deployed app.",
        ),
    ],
    options: Annotated[
        Path | None,
        typer.Option("--options", metavar="FILE", help="File with GPU types and numbers of GPUs of the app's options."),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", envvar="CORNSERVE_URL", help="URL of the gateway of a deployed app.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Print the model of an app, which follows from its code. `cornserve plan` plans it."""
    require_libraries()
    from cornserve_planner.model.document import ModelDocument
    from cornserve_planner.model.option_changes import OptionChanges

    document = ModelDocument.parse(read_app(context, app, url), source=f"{app}.json")
    if options is not None:
        document = OptionChanges.read(options).apply(document)
    typer.echo(document.dump() if json else document.dump_yaml(), nl=False)


def read_app(context: typer.Context, app: str, url: str | None) -> str:
    """Returns the JSON of the model document of an app. Raises `PlannerError` if the program cannot read apps."""
    read: AppModelReader | None = context.obj
    if read is None:
        raise PlannerError(f"{app}: `python -m cornserve_planner` cannot read apps: use `cornserve`")
    return read(context, app, url)
