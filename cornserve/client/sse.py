"""Server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class ServerSentEvent(NamedTuple):
    name: str
    data: str = ""

    @property
    def is_comment(self) -> bool:
        return self.name == "comment"


class SseParser:
    """Parses events from bytes. Yields comments as well: they show that the server is alive, and most libraries hide
    them.
    """

    def __init__(self) -> None:
        self._rest = b""
        """The last, incomplete line."""
        self._name = "message"
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if (event := self._parse_line(line.removesuffix(b"\r").decode(errors="replace"))) is not None:
                yield event

    def _parse_line(self, line: str) -> ServerSentEvent | None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "" if line:
                return ServerSentEvent("comment")
            case "":
                name, data = self._name, self._data
                self._name, self._data = "message", []
                return ServerSentEvent(name, "\n".join(data)) if data else None
        return None
