"""`python -m cornserve_planner workload`: checks files of requests, and makes some."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cornserve_planner.command import require_libraries

app = typer.Typer(no_args_is_help=True, help="Check files of requests, and make some.")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A .jsonl or .csv file of requests.")],
    most: Annotated[int, typer.Option(help="Show so many mistakes at most.", min=1)] = 20,
) -> None:
    """Say what is wrong with a file of requests, line by line, or else what is in it."""
    require_libraries()
    from cornserve_planner.workload import files
    from cornserve_planner.workload.summary import summary

    mistakes = files.check(file, most)
    for mistake in mistakes:
        typer.echo(f"error: {mistake}", err=True)
    if mistakes:
        raise typer.Exit(1)
    typer.echo(summary(list(files.read(file))))


@app.command()
def generate(
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
    require_libraries()
    from cornserve_planner.workload import files, servegen
    from cornserve_planner.workload.clients import ClientPool
    from cornserve_planner.workload.modalities import AddedModalities, with_modalities
    from cornserve_planner.workload.summary import summary

    requests = servegen.generate(ClientPool.servegen_images(), seconds, rate=rate, start=hour * 3600, seed=seed)
    if any_to_any:
        requests = list(with_modalities(requests, AddedModalities(), seed=seed))
    files.write(file, requests)
    typer.echo(summary(requests))
