"""Captures what the code of an app prints."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from cornserve.v1 import app_host_pb2 as pb

MAX_LINES: Final = 1000
"""The maximum number of lines in a play. Further ones are dropped."""

MAX_LINE_CHARACTERS: Final = 2000
"""Longer lines are cut."""


class PrintCapture(io.TextIOBase):
    """A text stream that keeps lines, and the line of the app's source that has written each.

    Args:
        source: the file name of the app's source in stack traces.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: list[pb.PrintedLine] = []
        self._unfinished = pb.PrintedLine()

    def install(self) -> None:
        """Replaces the standard output and the standard error of this process."""
        sys.stdout = sys.stderr = self

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        missing = MAX_LINES - len(self._lines)
        if missing > 0:
            number = self._line_number(sys._getframe(1))
            *finished, last = text.split("\n", missing)
            for part in finished:
                self._add(part, number)
                self._finish()
            if len(self._lines) < MAX_LINES:
                self._add(last, number)
        return len(text)

    @contextmanager
    def collected(self, reply: pb.HostReply) -> Iterator[None]:
        """Adds the lines that the block prints to the reply."""
        self._clear()
        try:
            yield
        finally:
            if self._unfinished.text:
                self._finish()
            reply.printed.extend(self._lines)
            self._clear()

    def _add(self, part: str, number: int) -> None:
        if part:
            self._unfinished.line = self._unfinished.line or number
            self._unfinished.text = (self._unfinished.text + part)[:MAX_LINE_CHARACTERS]

    def _finish(self) -> None:
        self._lines.append(self._unfinished)
        self._unfinished = pb.PrintedLine()

    def _clear(self) -> None:
        self._lines.clear()
        self._unfinished = pb.PrintedLine()

    def _line_number(self, frame: FrameType | None) -> int:
        """Returns the line of the app's source in the innermost of its frames, or 0."""
        while frame is not None and frame.f_code.co_filename != self._source:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lineno
