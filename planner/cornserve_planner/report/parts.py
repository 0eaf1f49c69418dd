"""Parts of the text output: titles, tables and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text


def title(text: str) -> Text:
    return Text(text, style="bold")


def table(numbers: Iterable[str], *, text_first: Iterable[str] = (), text: Iterable[str] = ()) -> Table:
    """Returns a table with columns of text, numbers, and text."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in text_first:
        found.add_column(column, overflow="fold")
    for column in numbers:
        found.add_column(column, justify="right", no_wrap=True)
    for column in text:
        found.add_column(column, overflow="fold")
    return found


def count_text(number: int, noun: str) -> str:
    """Returns `1 cell` or `2 cells`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def gpus_text(gpus: Mapping[str, int]) -> str:
    """Returns `8 GPUs`, or `2 A100-80GB + 1 L4` for several types, which are never added."""
    if len(gpus) > 1:
        return " + ".join(f"{number:,} {name}" for name, number in gpus.items())
    return count_text(sum(gpus.values()), "GPU")
