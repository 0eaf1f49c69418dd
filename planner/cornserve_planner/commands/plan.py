"""`cornserve plan model`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cornserve_planner.commands.plan_options import (
    BUDGET,
    INPUTS,
    TARGETS,
    Gpus,
    GpusOf,
    Percentile,
    PlanObjective,
    ProfileFile,
    Rate,
    Survive,
    Utilization,
    WorkloadFile,
)
from cornserve_planner.errors import PlannerError
from cornserve_planner.solve.time_limit import DEFAULT_TIME_LIMIT
from cornserve_planner.terminal import (
    parse_count,
    parse_settings,
    require_libraries,
    show,
    write_file,
)

if TYPE_CHECKING:
    from cornserve_planner.planning.request import PlanRequest
    from cornserve_planner.planning.result import PlanResult

EXAMPLES = [
    "cornserve plan qwen2.5-omni-7b --gpus 16",
    "cornserve plan internvl3-38b --rate 10 --explain",
    "cornserve plan model.yaml --workload day.jsonl --profile profile.yaml --gpus 8 --save plan.json --plot plan.svg",
    "cornserve plan qwen2.5-omni-7b --gpus 16 --factor monolith=3",
    "cornserve plan internvl3-38b --gpus 16 --utilization 0.7 --robust",
    "cornserve plan llava-1.5-7b --gpus-of RTX-4090=2 --gpus-of A100-80GB=2",
    "cornserve plan llava-1.5-7b --dollars 20",
    "cornserve plan chat.yaml --workload trace.jsonl --profile profile.yaml --gpus 8 --objective goodput --ttft 2",
]

SOLVING, OUTPUT = "Solver", "Output"
"""Groups of options in the help."""


def model_names(incomplete: str) -> list[str]:
    """Completes the names of shipped models. Lists file names and imports nothing."""
    names = sorted(path.stem for path in (Path(__file__).parents[1] / "model/shipped").glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete)]


def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="Name of a shipped model, or a file that describes one.", autocompletion=model_names
        ),
    ] = None,
    gpus: Gpus = None,
    gpus_of: GpusOf = None,
    dollars: Annotated[
        float | None,
        typer.Option(
            "--dollars",
            min=0,
            help="Maximize the rate within this price per hour, in one plan.",
            rich_help_panel=BUDGET,
        ),
    ] = None,
    rate: Rate = None,
    workload: WorkloadFile = None,
    profile: ProfileFile = None,
    gpu_types: Annotated[
        Path | None,
        typer.Option(
            "--gpu-types",
            help="File with memory and prices of GPUs. Default: the shipped file.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            metavar="OPTION=FACTOR",
            help="Colocation factor of an option: its time divided by the time of its components alone. Overrides the"
            " profile. Can be repeated.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    utilization: Utilization = None,
    ttft: Annotated[
        list[str] | None,
        typer.Option(
            "--ttft",
            metavar="[TYPE=]SECONDS",
            help="Target: seconds until the first token, of all request types or of one. Can be repeated.",
            rich_help_panel=TARGETS,
        ),
    ] = None,
    tbt: Annotated[
        list[str] | None,
        typer.Option(
            "--tbt",
            metavar="[TYPE=]SECONDS",
            help="Target: mean seconds between two tokens of a response.",
            rich_help_panel=TARGETS,
        ),
    ] = None,
    e2e: Annotated[
        list[str] | None,
        typer.Option(
            "--e2e",
            metavar="[TYPE=]SECONDS",
            help="Target: seconds until the end of the response.",
            rich_help_panel=TARGETS,
        ),
    ] = None,
    percentile: Percentile = None,
    robust: Annotated[
        bool,
        typer.Option(
            "--robust", help="Plan for the longest times of the profile's confidence intervals.", rich_help_panel=INPUTS
        ),
    ] = False,
    objective: PlanObjective = None,
    largest_cell: Annotated[
        int,
        typer.Option(
            "--largest-cell",
            min=1,
            max=1024,
            help="GPUs of the largest cell: the GPUs that share a fast network.",
            rich_help_panel=BUDGET,
        ),
    ] = 64,
    survive: Survive = False,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="Make one plan for all GPUs instead of a mixture of cells.", rich_help_panel=BUDGET
        ),
    ] = False,
    late_binding: Annotated[
        list[str] | None,
        typer.Option(
            "--late-binding",
            metavar="OPTION",
            help="Let gateways select a replica of the option when the one step before it has ended, such as decode"
            " after prefill. Can be repeated.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    solver: Annotated[
        Literal["highs", "cbc"], typer.Option("--solver", help="Solver to use.", rich_help_panel=SOLVING)
    ] = "highs",
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            min=0.1,
            help="Seconds for each cell; after that, the best plan so far is used.",
            rich_help_panel=SOLVING,
        ),
    ] = DEFAULT_TIME_LIMIT,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also print sources, all strategies and the gain of one more replica.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", dir_okay=False, help="Write the plan to this file, as JSON.", rich_help_panel=OUTPUT),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            dir_okay=False,
            help="Draw the executor graph and the throughput to this file (.svg, .png, .pdf).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.", rich_help_panel=OUTPUT)] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of plan files, and exit.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Find which components of a model to run together or apart, and how many replicas of each."""
    require_libraries()
    if schema:
        _print_schema()
        return
    if model is None:
        raise PlannerError("MODEL: is missing: give the name of a shipped model, or a file that describes one")
    from cornserve_planner.files.output_file import check_output, expanded

    outputs = [expanded(option, path).resolve() for option, path in (("--save", save), ("--plot", plot)) if path]
    if len({*outputs}) < len(outputs):
        raise PlannerError(f"--save, --plot: both name {save}: use two files")
    if save is not None:
        check_output("--save", save)
    if plot is not None:
        check_output("--plot", plot, (".svg", ".png", ".pdf"))
    from cornserve_planner.inputs.request_targets import PERCENTILE, GoodputTargets
    from cornserve_planner.inputs.service_targets import UTILIZATION, ServiceTargets
    from cornserve_planner.planning.request import PlanRequest

    given = {"ttft": ttft, "tbt": tbt, "e2e": e2e}
    form = "[TYPE=]SECONDS, such as 0.5 or image=2"
    latency = GoodputTargets(
        {kind: parsed for kind, texts in given.items() if (parsed := parse_settings(f"--{kind}", form, texts, float))},
        PERCENTILE if percentile is None else percentile,
    )
    request = PlanRequest(
        model=model,
        gpus=gpus,
        gpus_of=parse_settings("--gpus-of", "TYPE=N, a type and a whole number", gpus_of, parse_count),
        dollars=dollars,
        rate=rate,
        workload=workload,
        profile=profile,
        gpu_types=gpu_types,
        factors=parse_settings("--factor", "OPTION=FACTOR, a name and a number", factor, float),
        objective=objective,
        largest_cell=largest_cell,
        whole=whole,
        solver=solver,
        time_limit=time_limit,
        targets=ServiceTargets(UTILIZATION if utilization is None else utilization, latency, robust),
        explain=explain,
        survive=survive,
        late_binding=tuple(late_binding or ()),
    )
    result = _make_plan(request, quiet=json)
    _show(result, json=json, explain=explain)
    _write_files(result, save, plot)


def _print_schema() -> None:
    from pydantic_core import to_json

    from cornserve_planner.plan_file.document import PlanFile

    typer.echo(to_json(PlanFile.json_schema(), indent=2).decode())


def _make_plan(request: PlanRequest, *, quiet: bool) -> PlanResult:
    """Runs the planner and shows a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cornserve_planner.planning.model_plan import make_plan

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("Reading", total=None)

        def update(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=what)

        return make_plan(request, update)


def _write_files(result: PlanResult, save: Path | None, plot: Path | None) -> None:
    def draw(path: Path) -> None:
        from cornserve_planner.report.diagram import draw_plan

        draw_plan(result, path)

    for path, write in ((save, result.save), (plot, draw)):
        if path is not None:
            write_file(path, write)


def _show(result: PlanResult, *, json: bool, explain: bool) -> None:
    from cornserve_planner.report.plan_report import report

    show(result.as_document, lambda: report(result, everything=explain), json=json)
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
