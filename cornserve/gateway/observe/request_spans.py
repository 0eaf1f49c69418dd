"""The parts of one request over time: its media, the runs of its task, and the attempts of its invocations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from cornserve.app.overview import RequestSpan

MAX_SPANS: Final = 32
"""Spans that a request keeps. Further ones are left out."""


class GatewaySpan(NamedTuple):
    """Work of the gateway: the media of a request, or a run of its task."""

    kind: Literal["media", "run"]
    name: str
    start: float
    end: float

    def span(self) -> RequestSpan:
        return RequestSpan(kind=self.kind, name=self.name, start=self.start, end=self.end)


class AttemptSpan:
    """An attempt of an invocation.

    Args:
        after: the indices of the invocations whose outputs it reads.
        queued: seconds from the arrival of the request to the call by its task.
    """

    __slots__ = ("_fields", "_origin", "code", "end", "first_output", "inputs_read", "items")

    def __init__(
        self,
        origin: float,
        name: str,
        group: str,
        replica: str,
        *,
        index: int,
        attempt: int,
        after: Sequence[int],
        queued: float,
    ) -> None:
        self._origin = origin
        self._fields = name, group, replica, index, attempt, after, queued, self._now()
        self.end: float | None = None
        self.code = ""
        self.first_output: float | None = None
        self.inputs_read: float | None = None
        self.items = 0

    @property
    def group(self) -> str:
        return self._fields[1]

    @property
    def index(self) -> int:
        return self._fields[3]

    @property
    def after(self) -> Sequence[int]:
        return self._fields[5]

    @property
    def queued(self) -> float:
        return self._fields[6]

    def record_item(self) -> None:
        """Counts an item of a stream, or another early value."""
        self.items += 1
        if self.first_output is None:
            self.first_output = self._now()

    def record_inputs(self) -> None:
        """Times the end of the transfer of inputs."""
        self.inputs_read = self._now()

    def finish(self, code: str) -> None:
        if self.end is None:
            self.end, self.code = self._now(), code

    def span(self) -> RequestSpan:
        name, group, replica, index, attempt, after, queued, start = self._fields
        return RequestSpan(
            name=name,
            kind="invocation",
            queued=queued,
            start=start,
            end=self.end,
            group=group,
            replica=replica,
            index=index,
            attempt=attempt,
            code=self.code,
            after=[*after],
            inputs_read=self.inputs_read,
            first_output=self.first_output,
            items=self.items,
        )

    def _now(self) -> float:
        return time.perf_counter() - self._origin
