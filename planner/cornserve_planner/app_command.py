"""`cornserve plan --from APP`: derives the model from an app.

The planner imports no other package of Cornserve: a program that can read apps sets the object of the command's context
to a function that does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from cornserve_planner.errors import PlannerError

if TYPE_CHECKING:
    from cornserve_planner.model_document import ModelDocument

AppModelReader = Callable[[typer.Context, str, str | None], str]
"""Takes the command's context, an app and the URL of a gateway. Returns the JSON of a model document."""


def read_app_model(context: typer.Context) -> ModelDocument:
    """Returns the model of the app that `--from` names, changed by `--options`."""
    from cornserve_planner.model_document import ModelDocument
    from cornserve_planner.option_changes import OptionChanges

    given, read = context.params, context.obj
    if given["model"] is not None:
        raise PlannerError("MODEL, --from: both name a model: remove one of them")
    if read is None:
        raise PlannerError("--from: `python -m cornserve_planner` cannot read apps: use `cornserve plan`")
    document = ModelDocument.parse(read(context, given["from_app"], given["url"]), source=f"{given['from_app']}.json")
    return document if given["options"] is None else OptionChanges.read(given["options"]).apply(document)


def show_model(document: ModelDocument, *, json: bool) -> None:
    typer.echo(document.dump() if json else document.dump_yaml(), nl=False)
