"""Selects lines of an executor's log for messages and statuses."""

from __future__ import annotations

import re

from cornserve.observe.logs import parse_messages

MAX_LINE_CHARACTERS = 2000
"""Longer lines are cut: statuses contain log lines and must stay small."""
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt)\b")


def cut_line(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[: MAX_LINE_CHARACTERS - 2]} …"


def find_error(lines: list[str]) -> str:
    """Returns the last line of the last traceback, or the last line that is not empty."""
    messages = [part.strip() for line in lines for part in parse_messages(line) if part.strip()]
    exceptions = [line for line in messages if _EXCEPTION.match(line)]
    return (exceptions or messages or [""])[-1]
