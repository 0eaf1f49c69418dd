"""`python -m cornserve_planner.workload`: checks files of requests, and makes some."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cornserve_planner.errors import PlannerError
from cornserve_planner.workload import files
from cornserve_planner.workload.clients import ClientPool
from cornserve_planner.workload.modalities import AddedModalities, with_modalities
from cornserve_planner.workload.servegen import generate
from cornserve_planner.workload.summary import summary

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command("check")
def check_file(
    file: Annotated[Path, typer.Argument(help="A .jsonl or .csv file of requests.")],
    most: Annotated[int, typer.Option(help="Show so many mistakes at most.", min=1)] = 20,
) -> None:
    """Say what is wrong with a file of requests, line by line, or else what is in it."""
    mistakes = files.check(file, most)
    for mistake in mistakes:
        typer.echo(f"error: {mistake}", err=True)
    if mistakes:
        raise typer.Exit(1)
    typer.echo(summary(list(files.read(file))))


@app.command("generate")
def generate_file(
    file: Annotated[Path, typer.Argument(help="Where to write: a .jsonl or .csv file.")],
    seconds: Annotated[float, typer.Option(help="How long the workload lasts.")] = 600,
    rate: Annotated[float | None, typer.Option(help="Requests per second of all clients; else as recorded.")] = None,
    hour: Annotated[float, typer.Option(help="Of the recorded day, at which the workload begins.")] = 0,
    any_to_any: Annotated[
        bool, typer.Option(help="Add video, audio and audio output as Cornserve's paper does.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another gives another workload.")] = 0,
) -> None:
    """Make up requests in the manner of ServeGen's multimodal image clients."""
    try:
        requests = generate(ClientPool.servegen_images(), seconds, rate=rate, start=hour * 3600, seed=seed)
        if any_to_any:
            requests = list(with_modalities(requests, AddedModalities(), seed=seed))
        files.write(file, requests)
    except PlannerError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(summary(requests))


if __name__ == "__main__":
    app(prog_name="python -m cornserve_planner.workload")
