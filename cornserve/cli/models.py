"""`cornserve models`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, print_json, stdout
from cornserve.cli.options import Json

if TYPE_CHECKING:
    from cornserve_tasklib.model_catalog import KnownModel

EXAMPLES = ["cornserve models", "cornserve models qwen3", "cornserve models audio", "cornserve models --json"]

WIDTH = 320
"""Rows are not divided: other commands may read them."""


def models(
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="[WORD]",
            help="Only models with this word in their architecture, modalities, paths or tests.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the models that can be served, by the architecture in their config.json, and widespread ones that cannot.

    A path is a way to serve a model: `cornserve deploy MODEL --share PATH` selects it.
    """
    from cornserve_tasklib.model_catalog import known_models

    found = [model for model in known_models() if word is None or word.lower() in _text(model)]
    if word is not None and not found:
        raise CliError(f"no known model has {word!r} in its row: run `cornserve models` for all of them")
    if json:
        print_json([asdict(model) for model in found])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("architecture", "in", "out", "paths", "tested"):
        table.add_column(column, no_wrap=True)
    for model in found:
        table.add_row(model.architecture, model.inputs, model.outputs, ", ".join(model.paths), model.tested)
    console = stdout()
    console.width = max(console.width, WIDTH)
    console.print(table)


def _text(model: KnownModel) -> str:
    return " ".join((model.architecture, model.inputs, model.outputs, *model.paths, model.tested)).lower()
