"""`cornserve models`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, print_json, print_rows
from cornserve.cli.options import Json

if TYPE_CHECKING:
    from cornserve_tasklib.model_catalog import KnownModel

EXAMPLES = [
    "cornserve models",
    "cornserve models --search audio",
    "cornserve models --json",
    "cornserve models check ./Qwen2.5-VL-3B-Instruct",
]


def models(
    ctx: typer.Context,
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="WORD",
            help="Only models with this word in their architecture, modalities, paths or tests.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the models that can be served, by the architecture in their config.json, and widespread ones that cannot.

    A path is a way to serve a model: `cornserve deploy MODEL --share PATH` selects it.
    """
    if ctx.invoked_subcommand is not None:
        return
    from cornserve_tasklib.model_catalog import known_models

    found = [model for model in known_models() if search is None or search.lower() in _text(model)]
    if search is not None and not found:
        raise CliError(f"no known model has {search!r} in its row: run `cornserve models` for all of them")
    if json:
        print_json([asdict(model) for model in found])
        return
    rows = ((model.architecture, model.inputs, model.outputs, ", ".join(model.paths), model.tested) for model in found)
    print_rows(("architecture", "in", "out", "paths", "tested"), rows)


def _text(model: KnownModel) -> str:
    return " ".join((model.architecture, model.inputs, model.outputs, *model.paths, model.tested)).lower()
