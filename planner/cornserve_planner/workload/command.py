"""`python -m cornserve_planner workload`: checks and generates files of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cornserve_planner.command import require_libraries

app = typer.Typer(no_args_is_help=True, help="Check and generate files of requests.")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A .jsonl or .csv file of requests.")],
    most: Annotated[int, typer.Option(help="Maximum number of errors to show.", min=1)] = 20,
) -> None:
    """Report errors in a file of requests, line by line, or a summary of its contents."""
    require_libraries()
    from cornserve_planner.workload.request_files import check_requests, read_requests
    from cornserve_planner.workload.summary import summarize_requests

    errors = check_requests(file, most)
    for error in errors:
        typer.echo(f"error: {error}", err=True)
    if errors:
        raise typer.Exit(1)
    typer.echo(summarize_requests(list(read_requests(file))))


@app.command()
def generate(
    file: Annotated[Path, typer.Argument(help="The .jsonl or .csv file to write.")],
    seconds: Annotated[float, typer.Option(help="Duration of the workload in seconds.")] = 600,
    rate: Annotated[float | None, typer.Option(help="Requests per second of all clients. Default: recorded.")] = None,
    hour: Annotated[float, typer.Option(help="Start time in the recorded day, in hours.")] = 0,
    week: Annotated[
        bool,
        typer.Option(
            help="Follow the rate of an Azure production cluster, minute by minute. --hour is that of its week, and"
            " --rate the mean rate of the week."
        ),
    ] = False,
    any_to_any: Annotated[bool, typer.Option(help="Add video, audio and audio output as in [C §7.2].")] = False,
    video_share: Annotated[
        float, typer.Option(help="With --any-to-any: share of the requests with a video.", min=0, max=1)
    ] = 0.5,
    audio_share: Annotated[
        float, typer.Option(help="With --any-to-any: share of the requests with audio.", min=0, max=1)
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Generate requests that follow ServeGen's multimodal image clients."""
    require_libraries()
    from cornserve_planner.workload.added_modalities import AddedModalities, add_modalities
    from cornserve_planner.workload.azure_trace import azure_lmm_2024
    from cornserve_planner.workload.clients import ClientPool
    from cornserve_planner.workload.rate_curve import RateCurve
    from cornserve_planner.workload.request_files import write_requests
    from cornserve_planner.workload.servegen import generate_requests
    from cornserve_planner.workload.summary import summarize_requests

    curve: float | RateCurve | None = rate
    if week:
        curve = azure_lmm_2024().curve
        curve = (curve if rate is None else curve.scaled(rate)).between(hour * 3600, hour * 3600 + seconds)
    requests = generate_requests(ClientPool.servegen_images(), seconds, rate=curve, start=hour * 3600, seed=seed)
    if any_to_any:
        requests = list(add_modalities(requests, AddedModalities(video_share, audio_share), seed=seed))
    write_requests(file, requests)
    typer.echo(summarize_requests(requests))
