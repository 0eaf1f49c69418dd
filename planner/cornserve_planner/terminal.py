"""Parses settings of the command line, and prints and writes results."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from cornserve_planner.errors import InvalidInputError, PlannerError
from cornserve_planner.files.output_file import expanded

if TYPE_CHECKING:
    from rich.console import RenderableType

FILE_COLUMNS = 160
"""Width of a report if the output is not a terminal."""

LIBRARIES = ("highspy", "matplotlib", "numpy", "pulp", "yaml")

TIME_SETTING = re.compile(r"[a-z]+_seconds=")

Number = TypeVar("Number", int, float)


def require_libraries() -> None:
    """Raises `PlannerError` with an install command if optional dependencies are missing."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise PlannerError(f'{", ".join(missing)}: not installed: run pip install "cornserve[planner]"')


def parse_settings(
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


def parse_times(option: str, settings: list[str]) -> tuple[list[str], dict[str, float]]:
    """Separates times such as `window_seconds=20` from the other settings of an option, and returns both."""
    times = [setting for setting in settings if TIME_SETTING.match(setting)]
    others = [setting for setting in settings if not TIME_SETTING.match(setting)]
    return others, parse_settings(option, "a time in seconds, such as window_seconds=20", times, float)


def parse_count(text: str) -> int:
    """Raises `ValueError` unless `text` consists of ASCII digits."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def parse_bandwidth(text: str, option: str) -> float:
    """Returns the bytes/s of `400Gbit/s`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)bit/s", text, re.ASCII)
    if match is None or not float(match[1]):
        raise PlannerError(f"{option} must be a number of bits per second, such as 400Gbit/s, not {text!r}")
    return float(match[1]) * 1000.0 ** " KMGT".index(match[2] or " ") / 8


def show(document: Callable[[], dict[str, Any]], report: Callable[[], RenderableType], *, json: bool) -> None:
    """Prints JSON or a report."""
    if json:
        from pydantic_core import to_json

        typer.echo(to_json(document(), indent=2).decode())
    else:
        from rich.console import Console

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = FILE_COLUMNS
        console.print(report())


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Raises `InvalidInputError` if the file cannot be written."""
    target = expanded(str(path), path)
    try:
        write(target)
    except OSError as error:
        raise InvalidInputError(str(path), f"cannot be written: {error.strerror}") from error
