"""`python -m cornserve_planner workload`: checks, generates and imports files of requests."""

from __future__ import annotations

from os.path import realpath
from pathlib import Path
from typing import Annotated, Literal

import typer

from cornserve_plan.printable import printable_line
from cornserve_planner.terminal import require_libraries

app = typer.Typer(no_args_is_help=True, help="Check, generate and import files of requests.")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A .jsonl or .csv file of requests.")],
    most: Annotated[int, typer.Option(help="Maximum number of errors to show.", min=1)] = 20,
) -> None:
    """Report errors in a file of requests, line by line, or a summary of its contents."""
    require_libraries()
    from cornserve_planner.workload.request_files import check_requests
    from cornserve_planner.workload.summary import WorkloadSummary

    summary = WorkloadSummary()
    errors = check_requests(file, most, summary.add)
    for error in errors:
        typer.echo(f"error: {printable_line(str(error))}", err=True)
    if errors:
        raise typer.Exit(1)
    typer.echo(summary)


@app.command()
def generate(
    file: Annotated[Path, typer.Argument(help="The .jsonl or .csv file to write.")],
    seconds: Annotated[float, typer.Option(help="Duration of the workload in seconds.", max=604_800)] = 600,
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


@app.command()
def schema() -> None:
    """Print the JSON schema of a line of a file of requests (.jsonl)."""
    require_libraries()
    import json

    from cornserve_planner.workload.request_files import request_lines_schema

    typer.echo(json.dumps(request_lines_schema(), indent=2, ensure_ascii=False))


@app.command()
def mix(
    name: Annotated[
        str, typer.Argument(help="The mix: chats (text and images), assistant (speech) or studio (images out).")
    ],
    file: Annotated[Path, typer.Argument(help="The .jsonl or .csv file to write.")],
    requests: Annotated[int, typer.Option(help="Number of requests.", min=1, max=10_000_000)] = 1000,
    rate: Annotated[float, typer.Option(help="Requests per second, on average.")] = 1.0,
    burstiness: Annotated[
        float,
        typer.Option(
            help="Coefficient of variation of the gaps: 1 for Poisson arrivals, above for bursts.", min=0.001, max=1000
        ),
    ] = 1.0,
    scale: Annotated[float, typer.Option(help="Factor of all sizes, for example 0.1 for small models.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
) -> None:
    """Generate requests of a mix of modalities, with dependent calls and seeds of contents."""
    require_libraries()
    from cornserve_planner.workload.mixes import generate_mix
    from cornserve_planner.workload.request_files import write_requests
    from cornserve_planner.workload.summary import summarize_requests

    generated = generate_mix(name, requests, rate=rate, cv=burstiness, scale=scale, seed=seed)
    write_requests(file, generated)
    typer.echo(summarize_requests(generated))


@app.command("import")
def import_(
    trace: Annotated[
        Path,
        typer.Argument(
            help="A .csv or .jsonl file, a .json result of vLLM's benchmark, or a directory of ServeGen's client data."
        ),
    ],
    file: Annotated[Path, typer.Argument(help="The .jsonl or .csv file of requests to write.")],
    source: Annotated[
        Literal["azure", "mooncake", "burstgpt", "servegen", "vllm"] | None,
        typer.Option("--format", help="The source of the trace, which determines its columns."),
    ] = None,
    arrival: Annotated[
        str | None, typer.Option(help="Column of arrivals: seconds, or dates and times. Overrides --format.")
    ] = None,
    text_tokens: Annotated[str | None, typer.Option(help="Column of tokens of the prompt.")] = None,
    output_tokens: Annotated[str | None, typer.Option(help="Column of tokens of the response.")] = None,
    milliseconds: Annotated[bool, typer.Option("--milliseconds", help="Arrivals are in milliseconds.")] = False,
    seconds: Annotated[
        float, typer.Option(help="With --format servegen: duration, for which requests are drawn.", max=604_800)
    ] = 600,
    rate: Annotated[
        float | None, typer.Option(help="With --format servegen: requests per second. Default: recorded.", max=1e6)
    ] = None,
    seed: Annotated[int, typer.Option(help="With --format servegen: random seed.", min=0)] = 0,
) -> None:
    """Import a trace of another system."""
    require_libraries()
    from cornserve_planner.errors import PlannerError
    from cornserve_planner.workload.request_files import write_requests

    if Path(realpath(file)).is_relative_to(realpath(trace)):
        raise PlannerError(f"{file}: is the trace or in its directory: write the requests to another file")
    if source == "servegen":
        from cornserve_planner.workload.servegen import generate_requests
        from cornserve_planner.workload.servegen_import import read_clients

        write_requests(file, generate_requests(read_clients(trace), seconds, rate=rate, seed=seed))
        return
    from cornserve_planner.workload.trace_import import TRACES, TraceColumns, import_trace

    known = TRACES.get(source or "", TraceColumns("", "", ""))
    columns = TraceColumns(
        arrival or known.arrival,
        text_tokens or known.text_tokens,
        output_tokens or known.output_tokens,
        1000.0 if milliseconds else known.per_second,
    )
    if missing := [name for name, column in columns._asdict().items() if not column]:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise PlannerError(f"{options}: is missing: give --format, or the names of the columns")
    write_requests(file, import_trace(trace, columns, _report_failed))


def _report_failed(count: int) -> None:
    typer.echo(f"requests that have failed, and are left out: {count}", err=True)
