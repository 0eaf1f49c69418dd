"""Derives the planner's model document from an app, for `cornserve plan from`."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

import typer

from cornserve.cli.app_argument import is_deployed_name
from cornserve.cli.console import CliError
from cornserve.cli.file_import import run_import
from cornserve.cli.gateway import open_client

if TYPE_CHECKING:
    from cornserve.app.graph_recording import SpecGraph
    from cornserve.client.deploy_target import DeployTarget


def app_model(ctx: typer.Context, app: str, url: str | None) -> str:
    """Returns the model document of an app as JSON. Runs the code of a Python file.

    Args:
        app: a Python file, a model directory, a Hugging Face id, or the name of a deployed app.
        url: the gateway of a deployed app.
    """
    from cornserve.app.model_document import model_document

    if is_deployed_name(app):
        with open_client(ctx, url) as client:
            return dumps(model_document(app, client.graph(app)))
    from cornserve.client.deploy_target import resolve_target

    def document() -> str:
        target = resolve_target(app, name=None)
        return dumps(model_document(target.name, target_graph(target).graph))

    return run_import(app, document)


def target_graph(target: DeployTarget) -> SpecGraph:
    """Returns the executor graph of a deploy target. Runs the code of an app with source. Raises `CliError`."""
    from cornserve.app.graph_recording import graph_of_spec
    from cornserve.task.errors import DefinitionError

    try:
        return graph_of_spec(target.name, target.spec, "cornserve_planned_app")
    except DefinitionError as error:
        raise CliError(str(error)) from error
