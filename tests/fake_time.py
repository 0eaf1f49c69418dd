"""A clock for tests of code that sleeps in threads."""

from __future__ import annotations


class FakeTime:
    """Replaces the module `time`: a sleep returns at once, and moves the clock forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
