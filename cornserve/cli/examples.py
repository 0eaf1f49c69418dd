"""The examples at the end of `--help`."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """As typer's help prints it: a paragraph per line, in which square brackets are markup."""
    escaped = (line.replace("[", "\\[") for line in lines)
    return "\n\n".join(["[bold]Examples[/bold]", *(f"[dim]$[/dim] [cyan]{line}[/cyan]" for line in escaped)])
