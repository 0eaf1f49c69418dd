"""Prints tables."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from benchmarks.harness.machine import MachineInfo

FILE_COLUMNS = 140
"""The width of tables in files."""


def print_report(machine: MachineInfo, note: str, *tables: Table) -> None:
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
