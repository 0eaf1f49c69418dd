"""A page of memory in which an app host records that it runs code of the app. Its parent reads the page at any time."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from time import monotonic_ns

from cornserve.shared_page import create_page

_BYTES = mmap.PAGESIZE
_SESSION, _START, _HANDLED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class RunningCode:
    """Code of the app that runs."""

    session: int
    """The number of the session for which the code runs, or 0 if it runs for none."""
    start_ns: int
    """The time at which it started, on the clock of `time.monotonic_ns`, which all processes share."""

    @property
    def seconds(self) -> float:
        """The time for which the code has been running."""
        return (monotonic_ns() - self.start_ns) / 1e9


class Activity:
    """The code of the app that a host runs at present. One thread of the host writes it.

    Args:
        descriptor: a file from `create_file`. It can be closed after this.
    """

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, _BYTES)
        self._words = memoryview(self._page).cast("Q")

    @staticmethod
    def create_file() -> int:
        """Returns the descriptor of a new page in memory, which processes share by passing the descriptor."""
        return create_page("cornserve-activity", _BYTES)

    def begin(self, session: int = 0) -> None:
        """Records that code of the app starts for the session. Call `end` when the code has ended."""
        self._words[_SESSION] = session
        self._words[_START] = monotonic_ns()

    def end(self) -> None:
        self._words[_START] = 0

    def count_command(self) -> None:
        """Records that the host has begun to handle another command of its parent."""
        self._words[_HANDLED] += 1

    @property
    def handled_commands(self) -> int:
        """The number of commands that the host has begun to handle."""
        return self._words[_HANDLED]

    def read(self) -> RunningCode | None:
        """Returns the running code, or None if the host runs no code of the app."""
        while True:
            start, session = self._words[_START], self._words[_SESSION]
            # The host may write between the reads.
            if start == self._words[_START]:
                return RunningCode(session, start) if start else None

    def close(self) -> None:
        """Frees the page. It must not be used any more."""
        self._words.release()
        self._page.close()
