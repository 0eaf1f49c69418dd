"""Writes figures as soon as they are measured: as lines of JSON, and as tables in Markdown."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Figure = float | int | str

LINES = "figures.jsonl"
TABLES = "figures.md"


class Row(NamedTuple):
    """The figures of one case, or the reason why it did not run."""

    step: str
    case: str
    figures: Mapping[str, Figure]
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of one step. Other steps append to the same files.

    Args:
        deadline: the value of `time.monotonic` after which no case starts.
    """

    directory: Path
    step: str
    deadline: float
    _cases: set[str] = field(default_factory=set)

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def can_start(self, case: str, seconds: float = 0) -> bool:
        """Returns whether the time left suffices for a case. If not, adds a row without figures.

        Args:
            seconds: the expected duration.
        """
        if self.seconds_left > seconds:
            return True
        self.skip(case, "no time was left")
        return False

    def add(self, case: str, **figures: Figure) -> None:
        """Adds a row. Figures are rounded to four digits, and named by column: `steps_per_s` is "steps per s"."""
        self._write(Row(self.step, case, {name.replace("_", " "): _rounded(value) for name, value in figures.items()}))

    def skip(self, case: str, reason: str) -> None:
        """Adds a row without figures."""
        self._write(Row(self.step, case, {}, reason))

    def _write(self, row: Row) -> None:
        print(f"{row.step}: {row.case}: {_text(row)}", flush=True)
        with (self.directory / LINES).open("a") as lines:
            lines.write(json.dumps(row._asdict()) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        write_tables(self.directory)


def start_files(directory: Path) -> None:
    """Makes the directory. Renames the files of an earlier run by its time, so that the figures of runs do not mix."""
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / LINES).exists():
        ended = time.strftime("%Y%m%d-%H%M%S", time.localtime((directory / LINES).stat().st_mtime))
        for file in (directory / LINES, directory / TABLES):
            if file.exists():
                file.replace(file.with_stem(f"{file.stem}-{ended}"))


def read_rows(directory: Path) -> list[Row]:
    """Returns all rows in the order in which they were written. A line that was only written in part is left out."""
    file = directory / LINES
    rows = []
    for line in file.read_text().splitlines() if file.exists() else []:
        with suppress(json.JSONDecodeError):
            rows.append(Row(**json.loads(line)))
    return rows


def write_tables(directory: Path) -> None:
    """Writes a table for each step, which replaces the file at once."""
    partial = directory / f"{TABLES}.partial"
    partial.write_text(tables(read_rows(directory)))
    partial.replace(directory / TABLES)


def tables(rows: list[Row]) -> str:
    """Returns a table in Markdown for each step."""
    steps = dict.fromkeys(row.step for row in rows)
    return "\n".join(_table(step, [row for row in rows if row.step == step]) for step in steps)


def _table(step: str, rows: list[Row]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row.figures))
    lines = [f"| {step} | {' | '.join([*columns, 'not run'])} |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        cells = [str(row.figures.get(column, "")) for column in columns]
        lines.append(f"| {row.case} | {' | '.join([*cells, row.not_run or ''])} |")
    return "\n".join([*lines, ""])


def _text(row: Row) -> str:
    if row.not_run is not None:
        return f"not run: {row.not_run}"
    return ", ".join(f"{name} {value}" for name, value in row.figures.items())


def _rounded(value: Any) -> Figure:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value if isinstance(value, int | str) else str(value)
