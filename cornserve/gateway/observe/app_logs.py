"""The prints of the code of apps, and the tracebacks of its errors, for `cornserve logs`."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

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


class AppLogLines:
    """Keeps the last `MAX_LINES` lines of each of the `MAX_APPS` apps that have written last."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[str]] = OrderedDict()

    def last(self, app: str, count: int) -> list[str]:
        """Returns the last lines of an app."""
        lines = self._lines.get(app, ())
        return [*islice(lines, max(0, len(lines) - count), None)]

    def add(self, app: str, lines: Iterable[str]) -> None:
        kept = self._lines.setdefault(app, deque(maxlen=MAX_LINES))
        self._lines.move_to_end(app)
        if len(self._lines) > MAX_APPS:
            self._lines.popitem(last=False)
        kept.extend(lines)


class RequestLog:
    """Writes what the code of an app does for one request to the lines of the app, and to the log of the gateway.

    Args:
        request_id: the id in the lines of the app.
    """

    def __init__(self, lines: AppLogLines, app: str, request_id: str) -> None:
        self._lines = lines
        self._app = app
        self._request_id = request_id
        self._kept: deque[str] | None = None

    def keep_lines(self) -> deque[str]:
        """Returns the last `MAX_LINES` lines that the request writes after this call.

        They lack the time, the id, and the headings of errors that the response contains.
        """
        self._kept = deque(maxlen=MAX_LINES)
        return self._kept

    def add_failure(self, error: AppCodeError) -> None:
        log.error("the request failed: %s", error.place, extra=logs.traceback_field(error.traceback))
        frames = error.traceback.splitlines()
        self._add([self._heading(f"ERROR the request failed: {error.place}"), *frames], frames)

    def add_prints(self, lines: Sequence[PrintedLine]) -> None:
        for line in lines:
            log.info("app %r%s printed: %s", self._app, f", {line.line}," if line.line else "", line.text)
            text = f"{line.line}: {line.text}" if line.line else line.text
            self._add([self._heading(f"PRINT {text}" if line.line else f"PRINT: {text}")], [text])

    def add_failed_call(self, call: FailedCall) -> None:
        text = f"the recorded call of {call.function} failed: app {self._app!r}, task {call.task}, {call.line}"
        log.error("%s", text, extra=logs.traceback_field(call.traceback))
        frames = call.traceback.splitlines()
        self._add([self._heading(f"ERROR {text}"), *frames], [text, *frames])

    def _heading(self, text: str) -> str:
        return f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {text} request_id={self._request_id}"

    def _add(self, lines: Sequence[str], kept: Sequence[str]) -> None:
        self._lines.add(self._app, lines)
        if self._kept is not None:
            self._kept.extend(kept)
