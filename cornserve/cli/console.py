"""What commands print: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


class Problem(Exception):
    """Ends a command with exit status 1; the message is all that the user sees."""


@cache
def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@cache
def stdout() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def complain(message: str) -> None:
    from rich.text import Text

    stderr().print(Text.assemble(("error: ", "bold red"), message))


def emit(document: Any, *, lines: bool = False) -> None:
    """Prints JSON: one indented document, or one line of many."""
    from pydantic_core import to_json

    typer.echo(to_json(document, indent=None if lines else 2).decode())
    if lines:
        sys.stdout.flush()
