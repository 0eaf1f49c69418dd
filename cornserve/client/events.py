"""Server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Event(NamedTuple):
    name: str
    data: str = ""

    @property
    def is_comment(self) -> bool:
        return self.name == "comment"


class EventParser:
    """Takes bytes as they come, gives events. Comments count: they say that the other side is there, which libraries
    hide."""

    def __init__(self) -> None:
        self._rest = b""
        """The begun line."""
        self._name = "message"
        self._data: list[str] = []

    def take(self, data: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if (event := self._take_line(line.removesuffix(b"\r").decode(errors="replace"))) is not None:
                yield event

    def _take_line(self, line: str) -> Event | None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "" if line:
                return Event("comment")
            case "" if self._data:
                event = Event(self._name, "\n".join(self._data))
                self._name, self._data = "message", []
                return event
        return None
