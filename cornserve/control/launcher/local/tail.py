"""Reads the last lines of a log and finds the line with the error."""

from __future__ import annotations

import re
from pathlib import Path

from cornserve.observe.log_file import read_end
from cornserve.observe.logs import parse_messages

MAX_BYTES = 1 << 20
MAX_LINE_CHARACTERS = 2000
"""Longer lines are cut: statuses contain log lines and must stay small."""
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt)\b")


def tail(log: Path, lines: int) -> list[str]:
    """Returns the last lines within the last MiB of a log. Long lines are cut."""
    text = read_end(log, MAX_BYTES).decode(errors="replace")
    return [_cut(line) for line in text.splitlines()[-lines:]] if lines > 0 else []


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[: MAX_LINE_CHARACTERS - 2]} …"


def find_error(lines: list[str]) -> str:
    """Returns the last line of the last traceback, or the last line that is not empty."""
    messages = [part.strip() for line in lines for part in parse_messages(line) if part.strip()]
    exceptions = [line for line in messages if _EXCEPTION.match(line)]
    return (exceptions or messages or [""])[-1]
