"""Prints tables."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from benchmarks.harness.machine import MachineInfo

FILE_COLUMNS = 140
"""The width of tables in files."""

MARKDOWN_VARIABLE = "CORNSERVE_BENCHMARK_MARKDOWN"
"""If this variable of the environment is set, reports are printed as Markdown."""


def print_report(machine: MachineInfo, note: str, *tables: Table) -> None:
    if MARKDOWN_VARIABLE in os.environ:
        print("\n\n".join([f"{' '.join(note.split())}.", *map(markdown, tables)]))
        return
    console = Console()
    if not console.is_terminal:
        console.width = FILE_COLUMNS
    console.print(f"[bold]{machine}[/bold]\n{note}", *tables, sep="\n", highlight=False)


def create_table(text: Iterable[str], numbers: Iterable[str], title: str | None = None) -> Table:
    table = Table(title=title)
    for column in text:
        table.add_column(column, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def markdown(table: Table) -> str:
    """Returns a table as Markdown, with its title above it and its caption below."""
    columns = table.columns
    lines = [
        [str(column.header) for column in columns],
        ["--:" if column.justify == "right" else "---" for column in columns],
        *([str(cell) for cell in row] for row in zip(*(column.cells for column in columns), strict=True)),
    ]
    parts = [str(table.title or ""), "\n".join(f"| {' | '.join(line)} |" for line in lines), str(table.caption or "")]
    return "\n\n".join(filter(None, parts))
