"""The prints of the code of apps, and the tracebacks of its errors, for `cornserve logs`."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple, Protocol

from cornserve.gateway.errors import AppCodeError
from cornserve.observe import logs

log = logging.getLogger(__name__)

MAX_APPS = 100
MAX_LINES = 1000


class PrintedLine(NamedTuple):
    """A line that the code of an app has printed."""

    text: str
    line: str
    """The line of the app's source, such as "app.py:12", or an empty text if it is unknown."""


class FailedCall(NamedTuple):
    """A call of a function by `recorded` that has failed."""

    function: str
    task: str
    line: str
    """The line of the app that makes the call, such as "app.py:12"."""
    traceback: str
    """The frames and the type of the error, without content of requests."""


class LoggedIds(Protocol):
    """The ids of a request."""

    @property
    def public(self) -> str:
        """The id in the log. Several requests may have it."""

    @property
    def unique(self) -> str:
        """No other request has it."""


class _LogLine(NamedTuple):
    """A line of the log of an app."""

    ids: LoggedIds
    heading: str
    """The time and the kind, or an empty text for further lines of an error."""
    text: str

    def __str__(self) -> str:
        return f"{self.heading}{self.text} request_id={self.ids.public}" if self.heading else self.text


class AppLogLines:
    """Keeps the last `MAX_LINES` lines of each of the `MAX_APPS` apps that have written last."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[_LogLine]] = OrderedDict()

    def add_failure(self, app: str, ids: LoggedIds, error: AppCodeError) -> None:
        heading = _LogLine(ids, f"{_now()} ERROR the request failed: {error.place}", "")
        self._add(app, [heading, *_further_lines(ids, error.traceback)])

    def add_prints(self, app: str, ids: LoggedIds, lines: Sequence[PrintedLine]) -> None:
        self._add(app, [_printed(ids, line) for line in lines])

    def add_failed_call(self, app: str, ids: LoggedIds, call: FailedCall) -> None:
        heading = _LogLine(ids, f"{_now()} ERROR ", _failed(app, call))
        self._add(app, [heading, *_further_lines(ids, call.traceback)])

    def last(self, app: str, count: int) -> list[str]:
        """Returns the last lines of an app."""
        lines = self._lines.get(app, ())
        return [*map(str, islice(lines, max(0, len(lines) - count), None))]

    def of_request(self, app: str, ids: LoggedIds) -> list[str]:
        """Returns the lines of a request, without its id, times, and the headings of errors that it returns."""
        return [line.text for line in self._lines.get(app, ()) if line.ids.unique == ids.unique and line.text]

    def _add(self, app: str, lines: Iterable[_LogLine]) -> None:
        kept = self._lines.setdefault(app, deque(maxlen=MAX_LINES))
        self._lines.move_to_end(app)
        if len(self._lines) > MAX_APPS:
            self._lines.popitem(last=False)
        kept.extend(lines)


class RequestLog:
    """Writes what the code of an app does for one request to the lines of the app, and to the log of the gateway."""

    def __init__(self, lines: AppLogLines, app: str, ids: LoggedIds) -> None:
        self._lines = lines
        self._app = app
        self._ids = ids

    def add_prints(self, lines: Sequence[PrintedLine]) -> None:
        for line in lines:
            log.info("app %r%s printed: %s", self._app, f", {line.line}," if line.line else "", line.text)
        self._lines.add_prints(self._app, self._ids, lines)

    def add_failed_call(self, call: FailedCall) -> None:
        log.error("%s", _failed(self._app, call), extra=logs.traceback_field(call.traceback))
        self._lines.add_failed_call(self._app, self._ids, call)


def _printed(ids: LoggedIds, line: PrintedLine) -> _LogLine:
    if line.line:
        return _LogLine(ids, f"{_now()} PRINT ", f"{line.line}: {line.text}")
    return _LogLine(ids, f"{_now()} PRINT: ", line.text)


def _further_lines(ids: LoggedIds, traceback: str) -> list[_LogLine]:
    return [_LogLine(ids, "", line) for line in traceback.splitlines()]


def _failed(app: str, call: FailedCall) -> str:
    return f"the recorded call of {call.function} failed: app {app!r}, task {call.task}, {call.line}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
