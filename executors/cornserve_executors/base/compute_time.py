"""Divides the time of a replica among the invocations that compute at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable


class ComputeClock:
    """Advances by 1/n of a second per second while n invocations compute. It stands while no invocation computes.

    Args:
        now: seconds, from any start.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._computing = 0
        self._last = now()
        self._elapsed = 0.0
        self._busy = 0.0

    @property
    def busy_seconds(self) -> float:
        """The time in which invocations have computed."""
        computing = self._now() - self._last if self._computing else 0.0
        return self._busy + computing

    def start(self) -> float:
        """Adds an invocation. Returns the time of the clock."""
        self._advance()
        self._computing += 1
        return self._elapsed

    def stop(self) -> float:
        """Removes an invocation. Returns the time of the clock."""
        self._advance()
        self._computing -= 1
        return self._elapsed

    def _advance(self) -> None:
        now = self._now()
        if self._computing:
            self._busy += now - self._last
            self._elapsed += (now - self._last) / self._computing
        self._last = now


class ComputeTime:
    """The share of one invocation in the time of its replica. It begins at once.

    The shares of all invocations add up to the time in which the replica computed.
    """

    def __init__(self, clock: ComputeClock) -> None:
        self._clock = clock
        self._started: float | None = clock.start()
        self._has_ended = False
        self._seconds = 0.0

    def pause(self) -> None:
        """Excludes the time until `resume`, in which the invocation waits."""
        if self._started is not None:
            self._seconds += self._clock.stop() - self._started
            self._started = None

    def resume(self) -> None:
        if self._started is None and not self._has_ended:
            self._started = self._clock.start()

    def end(self) -> float:
        """Returns the seconds of the invocation, which does not compute any more."""
        self.pause()
        self._has_ended = True
        return self._seconds
