"""The load of replicas, as one caller sees it, without a query.

A load has two parts: the last report of the executor about other callers, and the invocations that this caller has sent
and that have not ended. With one caller, it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import count
from typing import Final, NamedTuple

MAX_REPORT_SECONDS: Final = 1.0
"""Older reports count as zero load. Otherwise, a caller would avoid a replica forever after one report of high load."""

_starts = count(1)


class LoadReport(NamedTuple):
    """The load of an executor by all callers."""

    at: float
    """Time when the report arrived, in seconds."""
    running: int
    """Invocations that do not wait for tensors."""
    waiting: int
    """Invocations that wait for tensors."""
    pending_tokens: int
    """Input tokens of the invocations without output."""
    own_invocations: int
    """The invocations of this caller among them."""
    own_pending_tokens: int
    """The part of this caller in `pending_tokens`."""

    @property
    def other_invocations(self) -> int:
        return max(0, self.running + self.waiting - self.own_invocations)

    @property
    def other_pending_tokens(self) -> int:
        return max(0, self.pending_tokens - self.own_pending_tokens)


class LoadLimits(NamedTuple):
    """Limits of the work that a replica does at a time. 0: unknown."""

    invocations: int = 0
    tokens: int = 0
    """The context length."""


class ReplicaLoad:
    """The load of one replica.

    Args:
        id: identifies the replica within its board.
    """

    __slots__ = ("_own", "_own_tokens", "_report", "_untaken", "capacity", "id", "last_start")

    def __init__(self, id: str) -> None:
        self.id = id
        self.capacity = LoadLimits()
        self.last_start = 0
        """Orders replicas by the last start of an invocation."""
        self._own: dict[int, int] = {}
        """The invocations of this caller that have not ended: the input tokens of those without output, by call."""
        self._own_tokens = 0
        self._untaken: dict[int, int] = {}
        """The input tokens of the invocations that have to take tensors out of limited memory, by call."""
        self._report = LoadReport(-MAX_REPORT_SECONDS, 0, 0, 0, 0, 0)

    def start(self, call: int, tokens: int) -> None:
        """Adds an invocation of this caller. `tokens` is the size of its input."""
        self.last_start = next(_starts)
        self._own[call] = tokens
        self._own_tokens += tokens

    def expect_taking(self, call: int) -> None:
        """Counts an invocation that has just started until it has taken its tensors out of memory that is limited."""
        self._untaken[call] = self._own[call]

    def end_taking(self, call: int) -> None:
        self._untaken.pop(call, None)

    def receive_output(self, call: int) -> None:
        """Counts the tokens of an invocation as processed, because it has output."""
        self._own_tokens -= self._own[call]
        self._own[call] = 0

    def end(self, call: int) -> None:
        """Removes an invocation."""
        self._own_tokens -= self._own.pop(call)
        self.end_taking(call)

    def report(self, report: LoadReport) -> None:
        """Replaces the last report."""
        self._report = report

    def invocations(self, now: float) -> int:
        """Returns the number of invocations that have not ended, of all callers."""
        return len(self._own) + (self._report.other_invocations if self._is_fresh(now) else 0)

    def pending_tokens(self, now: float) -> int:
        """Returns the input tokens of the invocations without output, of all callers."""
        return self._own_tokens + (self._report.other_pending_tokens if self._is_fresh(now) else 0)

    def has_capacity(self, tokens: int, now: float) -> bool:
        """Returns whether the replica can begin an invocation with an input of `tokens` tokens soon.

        The tensors that it takes at a time have at most the tokens of a context, or are a single one. A replica that
        hangs therefore keeps few tensors in the memory of their producers.
        """
        capacity, untaken = self.capacity, sum(self._untaken.values())
        if capacity.invocations and self.invocations(now) >= capacity.invocations:
            return False
        return not capacity.tokens or not self._untaken or untaken + tokens <= capacity.tokens

    def _is_fresh(self, now: float) -> bool:
        return now - self._report.at < MAX_REPORT_SECONDS


class Board(NamedTuple):
    """The replicas of an executor group."""

    replicas: Sequence[ReplicaLoad]
    """All replicas, in the order of their ids."""
    unavailable: Set[str] = frozenset()
    """The ids of the replicas that cannot be reached or have refused the invocation."""

    @property
    def available(self) -> Sequence[ReplicaLoad]:
        """The replicas that can take the invocation."""
        if not self.unavailable:
            return self.replicas
        return [replica for replica in self.replicas if replica.id not in self.unavailable]

    def with_capacity(self, tokens: int, now: float) -> Board:
        """Returns a board on which only replicas with capacity for an input of `tokens` tokens are available."""
        full = {replica.id for replica in self.available if not replica.has_capacity(tokens, now)}
        return Board(self.replicas, self.unavailable | full) if full else self
