"""The load of an executor, which its callers receive with events."""

from __future__ import annotations

from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.metrics import ExecutorMetrics


class ExecutorLoad:
    """The invocations of all callers."""

    def __init__(self, metrics: ExecutorMetrics) -> None:
        self._metrics = metrics
        self.invocations = 0
        self.pending_tokens = 0
        """Input tokens of the invocations that have not sent a chunk."""

    @property
    def waiting(self) -> int:
        """The number of invocations that wait for tensors."""
        return self._metrics.waiting


class CallerLoad:
    """The invocations of one caller."""

    def __init__(self, executor: ExecutorLoad) -> None:
        self._executor = executor
        self._pending: dict[int, int] = {}
        """The input tokens of each invocation, or 0 once it has sent a chunk, by call."""
        self._unreported: set[int] = set()
        """The invocations that have not sent a chunk."""
        self._pending_tokens = 0

    def start(self, call: int, tokens: int) -> None:
        """Adds an invocation with an input of `tokens` tokens."""
        self._pending[call] = tokens
        self._unreported.add(call)
        self._executor.invocations += 1
        self._add_pending(tokens)

    def send_chunk(self, call: int) -> pb.Load | None:
        """Counts a chunk. Returns the load if it is the first one of its invocation."""
        if call not in self._unreported:
            return None
        self._unreported.remove(call)
        self._add_pending(-self._pending[call])
        self._pending[call] = 0
        return self.report()

    def end(self, call: int) -> None:
        """Removes an invocation."""
        if call in self._pending:
            self._add_pending(-self._pending.pop(call))
            self._unreported.discard(call)
            self._executor.invocations -= 1

    def report(self) -> pb.Load:
        """Returns the current load."""
        waiting = self._executor.waiting
        return pb.Load(
            running=self._executor.invocations - waiting,
            waiting=waiting,
            pending_tokens=self._executor.pending_tokens,
            own_invocations=len(self._pending),
            own_pending_tokens=self._pending_tokens,
        )

    def _add_pending(self, tokens: int) -> None:
        self._pending_tokens += tokens
        self._executor.pending_tokens += tokens
