"""Examples at the end of `--help`."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Returns an epilog for typer, which prints each paragraph as a line and parses square brackets as markup."""
    escaped = (line.replace("[", "\\[") for line in lines)
    return "\n\n".join(["[bold]Examples[/bold]", *(f"[dim]$[/dim] [cyan]{line}[/cyan]" for line in escaped)])
