"""The tracebacks of requests whose app failed, for `cornserve logs`."""

from __future__ import annotations

from collections import OrderedDict, deque
from datetime import UTC, datetime
from itertools import islice

from cornserve.gateway.errors import AppCodeError

MAX_APPS = 100
MAX_LINES = 1000


class FailureLog:
    """Keeps the last `MAX_LINES` lines of each of the `MAX_APPS` apps that have failed last."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[str]] = OrderedDict()

    def add(self, app: str, request_id: str, error: AppCodeError) -> None:
        lines = self._lines.setdefault(app, deque(maxlen=MAX_LINES))
        self._lines.move_to_end(app)
        if len(self._lines) > MAX_APPS:
            self._lines.popitem(last=False)
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines.append(f"{time} ERROR the request failed: {error.place} request_id={request_id}")
        lines.extend(error.traceback.splitlines())

    def last(self, app: str, count: int) -> list[str]:
        """Returns the last lines of an app."""
        lines = self._lines.get(app, ())
        return list(islice(lines, max(0, len(lines) - count), None))
