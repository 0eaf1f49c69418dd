"""`cornserve plan`, also available as `python -m cornserve_planner plan`.

The command imports its dependencies when it runs, so that `--help` and shell completion start fast.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from cornserve_planner.errors import PlannerError

if TYPE_CHECKING:
    from cornserve_planner.planning import PlanRequest, PlanResult

EXAMPLES = [
    "cornserve plan qwen2.5-omni-7b --gpus 16",
    "cornserve plan internvl3-38b --rate 10 --explain",
    "cornserve plan model.yaml --workload day.jsonl --profile profile.yaml --gpus 8 --save plan.json --plot plan.svg",
    "cornserve plan qwen2.5-omni-7b --gpus 16 --factor monolith=3",
    "cornserve plan llava-1.5-7b --gpus-of RTX-4090=2 --gpus-of A100-80GB=2",
]

FILE_COLUMNS = 160
"""Width of the report if the output is not a terminal."""

LIBRARIES = ("highspy", "matplotlib", "numpy", "pulp", "yaml")


def model_names(incomplete: str) -> list[str]:
    """Completes the names of shipped models. Lists file names and imports nothing."""
    names = sorted(path.stem for path in (Path(__file__).parent / "models").glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete)]


def require_libraries() -> None:
    """Raises `PlannerError` with an install command if optional dependencies are missing."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise PlannerError(f'{", ".join(missing)}: not installed: run pip install "cornserve[planner]"')


def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Name of a shipped model, or a file that describes one.", autocompletion=model_names
        ),
    ],
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Maximize the rate within this many GPUs.")] = None,
    gpus_of: Annotated[
        list[str] | None,
        typer.Option(
            "--gpus-of", metavar="TYPE=N", help="Use at most N GPUs of this type, in one plan. Can be repeated."
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0, help="Serve this many requests/s at the lowest cost.")
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            "--workload",
            help="File with shares of request types, or with requests. Default: the workload of the published"
            " measurements.",
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", help="File with rates of deployment options. Default: the published rates."),
    ] = None,
    gpu_types: Annotated[
        Path | None, typer.Option("--gpu-types", help="File with memory and prices of GPUs. Default: the shipped file.")
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            metavar="OPTION=FACTOR",
            help="Colocation factor of an option: its time divided by the time of its components alone. Overrides the"
            " profile. Can be repeated.",
        ),
    ] = None,
    objective: Annotated[
        Literal["gpus", "dollars"], typer.Option("--objective", help="Cost that a --rate minimizes.")
    ] = "gpus",
    largest_cell: Annotated[
        int,
        typer.Option(
            "--largest-cell", min=1, max=1024, help="GPUs of the largest cell: the GPUs that share a fast network."
        ),
    ] = 64,
    whole: Annotated[
        bool, typer.Option("--whole", help="Make one plan for all GPUs instead of a mixture of cells.")
    ] = False,
    solver: Annotated[Literal["highs", "cbc"], typer.Option("--solver", help="Solver to use.")] = "highs",
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", min=0.1, help="Seconds for each cell; after that, the best plan so far is used."),
    ] = 60.0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print sources, all strategies and the gain of one more replica.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--save", dir_okay=False, help="Write the deployment plan to this file, as JSON.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", dir_okay=False, help="Draw the executor graph and the throughput to this file (.svg, .png, .pdf)."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Find which components of a model to run together or apart, and how many replicas of each.

    Needs neither a cluster nor a GPU.
    """
    require_libraries()
    if save is not None and plot is not None and save.expanduser().resolve() == plot.expanduser().resolve():
        raise PlannerError(f"--save, --plot: both name {save}: use two files")
    from cornserve_planner.planning import PlanRequest

    request = PlanRequest(
        model=model,
        gpus=gpus,
        gpus_of=_parse_settings("--gpus-of", "TYPE=N, a type and a whole number", gpus_of, _parse_count),
        rate=rate,
        workload=workload,
        profile=profile,
        gpu_types=gpu_types,
        factors=_parse_settings("--factor", "OPTION=FACTOR, a name and a number", factor, float),
        objective=objective,
        largest_cell=largest_cell,
        whole=whole,
        solver=solver,
        time_limit=time_limit,
    )
    result = _make_plan(request, quiet=json)
    _show(result, json=json, explain=explain)
    _write_files(result, save, plot)


Number = TypeVar("Number", int, float)


def _parse_settings(
    option: str, form: str, settings: list[str] | None, parse: Callable[[str], Number]
) -> dict[str, Number]:
    parsed: dict[str, Number] = {}
    for setting in settings or []:
        name, _, number = setting.rpartition("=")
        if name in parsed:
            raise PlannerError(f"{option}: {name!r} is given twice: remove one of them")
        try:
            parsed[name] = parse(number)
        except ValueError:
            raise PlannerError(f"{option} must be {form}, not {setting!r}") from None
    return parsed


def _parse_count(text: str) -> int:
    """Raises `ValueError` unless `text` consists of ASCII digits."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def _make_plan(request: PlanRequest, *, quiet: bool) -> PlanResult:
    """Runs the planner and shows a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cornserve_planner.planning import make_plan

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("Reading", total=None)

        def update(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=what)

        return make_plan(request, update)


def _write_files(result: PlanResult, save: Path | None, plot: Path | None) -> None:
    from cornserve_planner.errors import InvalidInputError

    def draw(path: Path) -> None:
        from cornserve_planner.diagram import draw_plan

        draw_plan(result, path)

    for path, write in ((save, result.save), (plot, draw)):
        if path is not None:
            try:
                write(path.expanduser())
            except OSError as error:
                raise InvalidInputError(str(path), f"cannot be written: {error.strerror}") from error


def _show(result: PlanResult, *, json: bool, explain: bool) -> None:
    if json:
        from pydantic_core import to_json

        typer.echo(to_json(result.as_document(), indent=2).decode())
    else:
        from rich.console import Console

        from cornserve_planner.report import report

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = FILE_COLUMNS
        console.print(report(result, everything=explain))
