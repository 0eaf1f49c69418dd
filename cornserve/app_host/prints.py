"""Captures what the code of an app prints."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from cornserve.v1 import app_host_pb2 as pb

MAX_LINES: Final = 1000
"""The maximum number of lines in a run. Further ones are dropped."""

MAX_LINE_CHARACTERS: Final = 2000
"""Longer lines are cut."""


class PrintCapture(io.TextIOBase):
    """A text stream that keeps lines, and the line of the app's source that has written each.

    Args:
        source: the path of the app's source in stack traces.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        _, _, self._file = source.rpartition("/")
        self._prints = _Prints()

    def install(self) -> None:
        """Replaces the standard output and the standard error of this process."""
        sys.stdout = sys.stderr = self

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        prints = self._prints
        missing = MAX_LINES - len(prints.lines)
        if missing > 0:
            line = self._line(sys._getframe(1))
            *finished, last = text.split("\n", missing)
            for part in finished:
                prints.add(part, line)
                prints.finish_line()
            if len(prints.lines) < MAX_LINES:
                prints.add(last, line)
        return len(text)

    @contextmanager
    def collected(self, reply: pb.HostReply) -> Iterator[None]:
        """Adds the lines that the block prints in this thread to the reply."""
        self.begin()
        try:
            yield
        finally:
            self.end(reply)

    def begin(self) -> None:
        """Drops the lines that this thread has printed so far."""
        self._prints.clear()

    def end(self, reply: pb.HostReply) -> None:
        """Adds the lines that this thread has printed since `begin` to the reply."""
        if self._prints.unfinished.text:
            self._prints.finish_line()
        reply.printed.extend(self._prints.lines)
        self._prints.clear()

    def _line(self, frame: FrameType | None) -> str:
        """Returns the line of the app's source in the innermost of its frames, such as "app.py:12", or empty."""
        while frame is not None and frame.f_code.co_filename != self._source:
            frame = frame.f_back
        return "" if frame is None else f"{self._file}:{frame.f_lineno}"


class _Prints(threading.local):
    """The lines that the current thread has printed."""

    def __init__(self) -> None:
        self.lines: list[pb.PrintedLine] = []
        self.unfinished = pb.PrintedLine()

    def add(self, part: str, line: str) -> None:
        if part:
            self.unfinished.line = self.unfinished.line or line
            self.unfinished.text = (self.unfinished.text + part)[:MAX_LINE_CHARACTERS]

    def finish_line(self) -> None:
        self.lines.append(self.unfinished)
        self.unfinished = pb.PrintedLine()

    def clear(self) -> None:
        self.lines.clear()
        self.unfinished = pb.PrintedLine()
