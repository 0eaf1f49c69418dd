"""The end of a log: its last lines, and the one that says what went wrong."""

from __future__ import annotations

import re
from pathlib import Path

from cornserve.observe.log_file import end_of
from cornserve.observe.logs import said

MAX_BYTES = 1 << 20
MAX_CHARACTERS = 2000
"""Of a line: lines are kept in statuses, which have to stay small."""
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt)\b")


def tail(log: Path, lines: int) -> list[str]:
    """The last lines, of at most the last MiB; long ones without their ends."""
    text = end_of(log, MAX_BYTES).decode(errors="replace")
    return [_cut(line) for line in text.splitlines()[-lines:]] if lines > 0 else []


def _cut(line: str) -> str:
    return line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 2]} …"


def reason(lines: list[str]) -> str:
    """The last line of the last traceback, or else the last line that says anything."""
    meaningful = [part.strip() for line in lines for part in said(line) if part.strip()]
    exceptions = [line for line in meaningful if _EXCEPTION.match(line)]
    return (exceptions or meaningful or [""])[-1]
