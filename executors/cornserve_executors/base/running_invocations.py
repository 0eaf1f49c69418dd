"""The invocations that an executor runs, and the limits for accepting more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from cornserve.limits import MIB
from cornserve.transport import ProductionId
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.metrics import ExecutorMetrics

WAITING_PER_QUEUE: Final = 16
"""Invocations that wait for tensors do not count toward the queue, up to this multiple of the queue."""

MAX_TOTAL_INPUTS: Final = 32_768
"""The limit for the inputs of all invocations. The event loop may handle all of them in one iteration."""


class RunningInvocations:
    """Args:
    queue: the limit for invocations that do not wait for tensors.
    max_bytes: the limit for the encoded inputs of all invocations.
    """

    def __init__(self, queue: int, max_bytes: int, metrics: ExecutorMetrics) -> None:
        self._queue = queue
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._tasks: dict[ProductionId, asyncio.Task[None]] = {}
        self._bytes = self._inputs = 0

    @property
    def tasks(self) -> Collection[asyncio.Task[None]]:
        return self._tasks.values()

    def add(self, attempt: ProductionId, nbytes: int, inputs: int, task: asyncio.Task[None]) -> None:
        """Counts the invocation, which has `inputs` inputs in a start of `nbytes` bytes, until the task is done."""
        self._tasks[attempt] = task
        self._bytes += nbytes
        self._inputs += inputs

        def remove(_: asyncio.Task[None]) -> None:
            del self._tasks[attempt]
            self._bytes -= nbytes
            self._inputs -= inputs

        task.add_done_callback(remove)

    def refusal(self, attempt: ProductionId, nbytes: int, inputs: int) -> pb.End | None:
        """Returns the end of an invocation that exceeds a limit, or that runs already. Returns None otherwise."""
        if attempt in self._tasks:
            message = (
                f"attempt {attempt.attempt} of invocation {attempt.invocation} of request {attempt.request_id} runs "
                "already: give each attempt another number"
            )
            return pb.End(code=pb.CODE_INVALID_ARGUMENT, message=message)
        if reason := self._exceeded_limit(nbytes, inputs):
            self._metrics.count_refused()
            return pb.End(code=pb.CODE_RESOURCE_EXHAUSTED, message=f"the executor has {reason}")
        return None

    def _exceeded_limit(self, nbytes: int, inputs: int) -> str | None:
        if len(self._tasks) - self._metrics.waiting >= self._queue:
            return f"{self._queue} invocations (see the limit `queue`)"
        if len(self._tasks) >= WAITING_PER_QUEUE * self._queue:
            return f"{len(self._tasks)} invocations that wait for tensors ({WAITING_PER_QUEUE} times the limit `queue`)"
        if self._tasks and self._bytes + nbytes > self._max_bytes:
            return f"invocations with {self._bytes // MIB} MiB of input (a quarter of its memory): send it again later"
        if self._tasks and self._inputs + inputs > MAX_TOTAL_INPUTS:
            return f"invocations with {self._inputs} inputs, of at most {MAX_TOTAL_INPUTS}: send it again later"
        return None
