"""Output of commands: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any

import typer

from cornserve_plan.printable import printable, printable_line

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console


class CliError(Exception):
    """Ends a command with exit status 1 after its message is printed."""


def local_time(time: datetime) -> str:
    """Returns the time for users, such as 2026-10-15 09:12:31."""
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


@cache
def stderr() -> Console:
    return _printable_console(stderr=True)


@cache
def stdout() -> Console:
    return _printable_console(stderr=False)


def _printable_console(*, stderr: bool) -> Console:
    """Returns a console that shows control characters, which messages of apps and models can contain, as escapes."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return PrintableConsole(stderr=stderr, highlight=False, soft_wrap=True)


_ROW_WIDTH = 320
"""The minimum width of tables that other commands may read."""


def print_rows(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Prints a table whose rows are not divided, because other commands may read them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = stdout()
    console.width = max(console.width, _ROW_WIDTH)
    console.print(table, markup=False)


def print_error(message: str) -> None:
    """Prints an error in one line."""
    from rich.text import Text

    stderr().print(Text.assemble(("error: ", "bold red"), printable_line(message)))


def print_model_text(text: str, *, end: str = "\n") -> None:
    """Prints a text of a model: on a terminal with escapes in place of control characters, elsewhere unchanged."""
    typer.echo((printable(text) if sys.stdout.isatty() else text) + end, nl=False)


def print_warning(message: str) -> None:
    stderr().print(f"warning: {message}", markup=False)


def expanded(path: Path | str) -> Path:
    """Returns a path with the home directory of its user in place of `~`. Raises `CliError` if it cannot exist."""
    shown = repr(str(path)[:200])
    if "\0" in str(path):
        raise CliError(f"cannot access {shown}: a path does not contain a NUL character")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise CliError(f"cannot access {shown}: the home directory is unknown: give the path without ~") from error


def check_file(file: Path) -> None:
    """Raises `CliError` if a file cannot be written: before the work whose result it gets."""
    path = expanded(file)
    mode: int | None = None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise CliError(f"cannot save {file}: {file.parent} is not a directory: create it") from None
    except OSError as error:
        raise CliError(f"cannot save {file}: {error.strerror}") from error
    if mode is not None and S_ISDIR(mode):
        raise CliError(f"cannot save {file}: {os.strerror(errno.EISDIR)}")
    if not os.access(path.parent if mode is None else path, os.W_OK):
        raise CliError(f"cannot save {file}: {os.strerror(errno.EACCES)}")


def write_file(file: Path, content: bytes) -> None:
    """Raises `CliError` if the file cannot be written."""
    try:
        file.write_bytes(content)
    except OSError as error:
        raise CliError(f"cannot save {file}: {error.strerror}") from error


def without_empty_values(value: Any) -> Any:
    """Returns a JSON value without fields that are null, an empty text, an empty array or an empty object."""
    if isinstance(value, list):
        return [*map(without_empty_values, value)]
    if not isinstance(value, dict):
        return value
    fields = {name: without_empty_values(field) for name, field in value.items()}
    return {name: field for name, field in fields.items() if field not in (None, "", [], {})}


def json_text(document: Any, *, lines: bool = False) -> str:
    """Returns a JSON document: indented, or as one of several lines."""
    from pydantic_core import to_json

    return to_json(document, indent=None if lines else 2).decode()


def print_json(document: Any, *, lines: bool = False) -> None:
    """Prints a JSON document: indented, or as one of several lines."""
    typer.echo(json_text(document, lines=lines))
    if lines:
        sys.stdout.flush()
