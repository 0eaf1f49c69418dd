"""Limits the invocations of one request that run at a time in an executor group, and queues the others.

Executors refuse invocations when their queues are full. A request with many independent invocations must neither fail
therefore nor fill the queues for other requests. When an invocation ends, the next one starts. The limit is halved when
an executor refuses an invocation, and grows by one with each that ends, as in TCP's congestion control.

Invocations that consume tensors are not limited before an executor refuses one: their producers are.
"""

from __future__ import annotations

from typing import Final

from cornserve.gateway.request.invocation_execution import InvocationExecution

MAX_RUNNING: Final = 128
"""The number of invocations of a request that each replica of a group runs or queues, at most."""


class FanOut:
    """The invocations of one request in one executor group.

    Args:
        limit: the maximum number of invocations that run at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = self._max_limit = limit
        self._running: set[InvocationExecution] = set()
        self._waiting: dict[InvocationExecution, None] = {}
        """The executions that wait for others to end, in the order of their arrival."""
        self._has_ended = False
        """Whether the executors have accepted and ended an invocation."""

    @property
    def is_full(self) -> bool:
        if len(self._running) >= self._limit:
            self._running = {execution for execution in self._running if execution.is_running}
        return len(self._running) >= self._limit

    @property
    def is_accepted(self) -> bool:
        """Whether the executors have accepted invocations of the request, so that it can wait for them."""
        return self._has_ended or any(execution.is_running for execution in self._running)

    def add_running(self, execution: InvocationExecution) -> None:
        self._waiting.pop(execution, None)
        self._running.add(execution)

    def add_waiting(self, execution: InvocationExecution) -> None:
        """Queues an execution until others have ended."""
        self._waiting[execution] = None

    def on_refused(self, execution: InvocationExecution) -> None:
        """Lowers the limit, because the queue of an executor is full."""
        self._running.discard(execution)
        self._limit = max(1, len(self._running) // 2)

    def on_ended(self, execution: InvocationExecution) -> None:
        if execution in self._running:
            self._running.discard(execution)
            self._has_ended = True
            self._limit = min(self._limit + 1, self._max_limit)

    def take_waiting(self) -> InvocationExecution | None:
        """Returns the next execution that may start, or None."""
        if not self._waiting or self.is_full:
            return None
        execution = next(iter(self._waiting))
        del self._waiting[execution]
        return execution
