"""Reads the page's text from `text/` and formats its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def prose(name: str) -> str:
    """Returns a text with a field in braces for each number."""
    return (Path(__file__).parent / f"text/{name}.md").read_text(encoding="utf-8")


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, text: int = 1) -> str:
    """Formats a table. The first `text` columns contain text, the others numbers."""
    marks = ["---" if index < text else "--:" for index in range(len(header))]
    lines = [header, marks, *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def replicas(counts: Mapping[str, int], short: Mapping[str, str]) -> str:
    """Formats replicas as in `5 EL + 3 G`."""
    return " + ".join(f"{count} {short[name]}" for name, count in counts.items())
