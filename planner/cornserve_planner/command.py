"""`cornserve plan`, which is `python -m cornserve_planner plan` where the planner is used alone.

What it needs is imported when it runs, so that `--help` and shell completion answer at once.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from cornserve_planner.errors import PlannerError

if TYPE_CHECKING:
    from cornserve_planner.session import Found, Wish

EXAMPLES = [
    "cornserve plan qwen2.5-omni-7b --gpus 16",
    "cornserve plan internvl3-38b --rate 10 --explain",
    "cornserve plan model.yaml --workload day.jsonl --profile profile.yaml --gpus 8 --save plan.json --plot plan.svg",
    "cornserve plan qwen2.5-omni-7b --gpus 16 --factor monolith=3",
    "cornserve plan llava-1.5-7b --gpus-of RTX-4090=2 --gpus-of A100-80GB=2",
]

FILE_COLUMNS = 160
"""The width of what goes to a file, where nothing tells how much there is."""

LIBRARIES = ("highspy", "matplotlib", "numpy", "pulp", "yaml")


def model_names(incomplete: str) -> list[str]:
    """For shell completion: looks at the files' names, and loads nothing."""
    names = sorted(path.stem for path in (Path(__file__).parent / "models").glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete)]


def require_libraries() -> None:
    """Cornserve can be installed without what the planner needs. Raises `PlannerError` saying what to do then."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise PlannerError(f'{", ".join(missing)}: not installed; the planner needs: pip install "cornserve[planner]"')


def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="One that is shipped, or a file that describes one.", autocompletion=model_names
        ),
    ],
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Serve as much as possible with so many.")] = None,
    gpus_of: Annotated[
        list[str] | None,
        typer.Option("--gpus-of", metavar="TYPE=N", help="At most so many of a type, in one plan; may be repeated."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0, help="Serve so many requests/s, as cheaply as possible.")
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            "--workload", help="Shares of request types, or a file of requests. By default, what papers measured with."
        ),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="What options can do. By default, what papers print of the model.")
    ] = None,
    gpu_types: Annotated[
        Path | None, typer.Option("--gpu-types", help="Memory and prices of GPUs, to replace those that are shipped.")
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            metavar="OPTION=FACTOR",
            help="How many times as long an option takes as its components alone, instead of what its profile says.",
        ),
    ] = None,
    objective: Annotated[
        Literal["gpus", "dollars"], typer.Option("--objective", help="What a --rate is served with least of.")
    ] = "gpus",
    largest_cell: Annotated[
        int, typer.Option("--largest-cell", min=1, max=1024, help="GPUs that share a fast network.")
    ] = 64,
    whole: Annotated[
        bool, typer.Option("--whole", help="One plan for all GPUs, instead of cells that can be added and taken away.")
    ] = False,
    solver: Annotated[Literal["highs", "cbc"], typer.Option("--solver", help="Who solves the program.")] = "highs",
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=0.1, help="Seconds for each cell; then the best so far is taken.")
    ] = 60.0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also: all strategies, what one more replica gives.")
    ] = False,
    save: Annotated[Path | None, typer.Option("--save", dir_okay=False, help="Write what to run, as JSON.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", dir_okay=False, help="Draw the executor graph, and requests/s against GPUs."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Find out which components of a model to run together or apart, and how many replicas of each.

    Needs no cluster and no GPU.
    """
    require_libraries()
    if save is not None and plot is not None and save.expanduser().resolve() == plot.expanduser().resolve():
        raise PlannerError(f"--save, --plot: both would write {save}")
    from cornserve_planner.session import Wish

    wish = Wish(
        model=model,
        gpus=gpus,
        gpus_of=_settings("--gpus-of", "TYPE=N, a type and a whole number", gpus_of, _count),
        rate=rate,
        workload=workload,
        profile=profile,
        gpu_types=gpu_types,
        factors=_settings("--factor", "OPTION=FACTOR, a name and a number", factor, float),
        objective=objective,
        largest_cell=largest_cell,
        whole=whole,
        solver=solver,
        time_limit=time_limit,
    )
    found = _find(wish, quiet=json)
    _show(found, json=json, explain=explain)
    _write(found, save, plot)


Number = TypeVar("Number", int, float)


def _settings(option: str, form: str, settings: list[str] | None, read: Callable[[str], Number]) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for setting in settings or []:
        name, _, number = setting.rpartition("=")
        if name in found:
            raise PlannerError(f"{option}: {name!r} is given twice")
        try:
            found[name] = read(number)
        except ValueError:
            raise PlannerError(f"{option} is {form}: not {setting!r}") from None
    return found


def _count(text: str) -> int:
    """Raises `ValueError` for anything but digits."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def _find(wish: Wish, *, quiet: bool) -> Found:
    """Shows how far it is, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cornserve_planner.session import find

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("Reading", total=None)

        def advance(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=what)

        return find(wish, advance)


def _write(found: Found, save: Path | None, plot: Path | None) -> None:
    from cornserve_planner.errors import InvalidInputError

    for path, write in ((save, found.save), (plot, found.plot)):
        if path is not None:
            try:
                write(path.expanduser())
            except OSError as error:
                raise InvalidInputError(str(path), f"cannot be written: {error.strerror}") from error


def _show(found: Found, *, json: bool, explain: bool) -> None:
    if json:
        from pydantic_core import to_json

        typer.echo(to_json(found.as_document(), indent=2).decode())
    else:
        from rich.console import Console

        from cornserve_planner.report import report

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = FILE_COLUMNS
        console.print(report(found, everything=explain))
