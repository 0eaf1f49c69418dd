"""The prints of the code of apps, and the tracebacks of its errors, for `cornserve logs`."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from cornserve.gateway.errors import AppCodeError

MAX_APPS = 100
MAX_LINES = 1000


class PrintedLine(NamedTuple):
    """A line that the code of an app has printed."""

    text: str
    line: int
    """The line of the app's source, or 0 if it is unknown."""


class AppLogLines:
    """Keeps the last `MAX_LINES` lines of each of the `MAX_APPS` apps that have written last."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[str]] = OrderedDict()

    def add_failure(self, app: str, request_id: str, error: AppCodeError) -> None:
        heading = f"{_now()} ERROR the request failed: {error.place} request_id={request_id}"
        self._add(app, [heading, *error.traceback.splitlines()])

    def add_prints(self, app: str, request_id: str, lines: Sequence[PrintedLine]) -> None:
        self._add(app, [f"{_now()} PRINT line {number}: {text} request_id={request_id}" for text, number in lines])

    def last(self, app: str, count: int) -> list[str]:
        """Returns the last lines of an app."""
        lines = self._lines.get(app, ())
        return list(islice(lines, max(0, len(lines) - count), None))

    def _add(self, app: str, lines: Iterable[str]) -> None:
        kept = self._lines.setdefault(app, deque(maxlen=MAX_LINES))
        self._lines.move_to_end(app)
        if len(self._lines) > MAX_APPS:
            self._lines.popitem(last=False)
        kept.extend(lines)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
