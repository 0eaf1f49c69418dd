"""Reads the last lines of a log."""

from __future__ import annotations

from pathlib import Path

from cornserve.control.launcher.log_excerpts import cut_line
from cornserve.observe.log_file import read_end

MAX_BYTES = 1 << 20


def tail(log: Path, lines: int) -> list[str]:
    """Returns the last lines within the last MiB of a log. Long lines are cut."""
    text = read_end(log, MAX_BYTES).decode(errors="replace")
    return [cut_line(line) for line in text.splitlines()[-lines:]] if lines > 0 else []
