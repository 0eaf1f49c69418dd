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
    from cornserve_planner.workload.request_files import check_requests, read_requests
    from cornserve_planner.workload.summary import summarize_requests

    mistakes = check_requests(file, most)
    for mistake in mistakes:
        typer.echo(f"error: {mistake}", err=True)
    if mistakes:
        raise typer.Exit(1)
    typer.echo(summarize_requests(list(read_requests(file))))


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
    from cornserve_planner.workload.added_modalities import AddedModalities, add_modalities
    from cornserve_planner.workload.clients import ClientPool
    from cornserve_planner.workload.request_files import write_requests
    from cornserve_planner.workload.servegen import generate_requests
    from cornserve_planner.workload.summary import summarize_requests

    requests = generate_requests(ClientPool.servegen_images(), seconds, rate=rate, start=hour * 3600, seed=seed)
    if any_to_any:
        requests = list(add_modalities(requests, AddedModalities(), seed=seed))
    write_requests(file, requests)
    typer.echo(summarize_requests(requests))
