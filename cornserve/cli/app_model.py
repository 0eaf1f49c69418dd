"""Derives the planner's model document from an app, for `cornserve plan --from`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING, Any

import typer

from cornserve.cli.app_argument import is_deployed_name
from cornserve.cli.console import CliError
from cornserve.cli.gateway import open_client

if TYPE_CHECKING:
    from cornserve.app.graph import AppGraph, GraphOption, GraphPath
    from cornserve.client.deploy_target import DeployTarget


def app_model(ctx: typer.Context, app: str, url: str | None) -> str:
    """Returns the model document of an app as JSON. Runs the code of a Python file.

    Args:
        app: a Python file, a model directory, a Hugging Face id, or the name of a deployed app.
        url: the gateway of a deployed app.
    """
    if is_deployed_name(app):
        with open_client(ctx, url) as client:
            return dumps(_document(app, client.graph(app)))
    from cornserve.client.deploy_target import resolve_target

    return target_model(resolve_target(app, name=None))


def target_model(target: DeployTarget) -> str:
    """Returns the model document of a deploy target as JSON. Runs the code of an app with source."""
    from cornserve.app.graph_recording import graph_of_spec
    from cornserve.task.errors import DefinitionError

    try:
        return dumps(_document(target.name, graph_of_spec(target.name, target.spec, "cornserve_planned_app")))
    except DefinitionError as error:
        raise CliError(str(error)) from error


def _document(name: str, graph: AppGraph) -> dict[str, Any]:
    """Returns the fields of a `cornserve_planner.model_document.ModelDocument`."""
    document = {
        "format": "cornserve-planner/model",
        "version": 1,
        "name": name,
        "components": {name: {"after": after} if after else {} for name, after in graph.components.items()},
        "options": {name: _option(option) for name, option in graph.options.items()},
        "paths": list(dict.fromkeys(options for path in graph.paths for options in _declared(path))),
    }
    if graph.modalities is not None:
        document["modalities"] = graph.modalities.model_dump()
    return document


def _option(option: GraphOption) -> dict[str, Any]:
    gpus = {"gpus": option.gpus} if option.gpus > 1 else {}
    return {
        "components": option.components,
        **gpus,
        "executor": {"task": option.task, "settings": option.settings},
    }


def _declared(path: GraphPath) -> Iterator[tuple[str, ...]]:
    """Yields the options of the path, in order. Types that skip some of these options are on the same path."""
    sequences = sorted({tuple(step.option for step in steps) for steps in path.steps.values()}, key=len, reverse=True)
    for index, options in enumerate(sequences):
        if not any(_is_subsequence(options, longer) for longer in sequences[:index]):
            yield options


def _is_subsequence(options: Sequence[str], longer: Sequence[str]) -> bool:
    remaining = iter(longer)
    return all(option in remaining for option in options)
