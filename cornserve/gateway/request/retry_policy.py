"""The retry rule: whether an invocation runs again after its executor has refused it or died, or its inputs are lost.

An attempt that has not begun costs nothing, so another replica gets the invocation. After the death of an executor, an
invocation runs again if the client has read nothing of its output, or if its task declares that another executor
continues the output exactly (`UnitTask.continues`). A completed invocation runs again if its tensors are lost before
their consumers have read them; its values stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cornserve.gateway.request.dataflow import Dataflow
from cornserve.gateway.request.invocation_execution import InvocationExecution
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve_policies.retries import MAX_EXECUTOR_DEATHS

MAX_INPUT_LOSSES = 3
"""The number of attempts of one invocation that may find their input tensors lost."""


@dataclass(frozen=True, slots=True)
class RepeatedProducers:
    """The producers of lost inputs that run again: see `RetryPolicy.repeat_producers`.

    Args:
        completed: those that have ended.
        running: those whose current attempt is given up.
    """

    completed: list[InvocationExecution] = field(default_factory=list)
    running: list[InvocationExecution] = field(default_factory=list)


class RetryPolicy:
    """The retry decisions of one request."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        self._dead_replicas: set[ReplicaConnection] = set()
        """Replicas whose executors have died during this request."""

    @property
    def is_exhausted(self) -> bool:
        """Whether more executors have died than a request may survive."""
        return self.deaths > MAX_EXECUTOR_DEATHS

    @property
    def deaths(self) -> int:
        """The number of executors that have died during this request."""
        return len(self._dead_replicas)

    def count_death(self, replica: ReplicaConnection) -> None:
        self._dead_replicas.add(replica)

    def allows(self, execution: InvocationExecution, code: str, *, has_replica: bool) -> bool:
        """Returns whether to retry after `code`. `has_replica`: a reachable replica has not refused the invocation."""
        match code:
            case "UNAVAILABLE":
                return True
            case "RESOURCE_EXHAUSTED":
                return has_replica
            case "ABORTED":
                is_unread = not self._dataflow.is_stream_read(execution) or execution.invocation.is_continuable
                return not self.is_exhausted and _is_resumable(execution) and is_unread
            case "HANDED_OVER":
                return execution.is_leaving and _is_resumable(execution)
        return False

    def can_be_handed_over(self, execution: InvocationExecution) -> bool:
        """Returns whether a running invocation may continue on another replica.

        It must have a stream, also one that the client does not read, and no tensors, and must not read streams of
        tensors. Its executor decides whether and when another one can continue it exactly. If that one needs inputs
        that were released, their producers run again.
        """
        invocation = execution.invocation
        if not invocation.stream_names or invocation.has_tensors or invocation.has_early_values:
            return False
        producers = self._dataflow.producers(execution)
        reads_streams = any(self._dataflow.consumed_streams(execution, producer) for producer in producers)
        return not reads_streams and invocation.is_continuable

    def repeat_producers(
        self, execution: InvocationExecution, inputs: Sequence[int], message: str
    ) -> RepeatedProducers | str:
        """Returns the producers of lost inputs that run again before the execution does, or why it fails.

        Args:
            inputs: the indices of the inputs.
            message: the tensors that are lost, and why.
        """
        if not _is_resumable(execution):
            return f"its inputs were lost after it had sent output: {message}"
        if execution.input_losses > MAX_INPUT_LOSSES:
            return f"its inputs were lost {execution.input_losses} times: {message}"
        repeated = RepeatedProducers()
        for pending in (execution.inputs[index].pending for index in inputs):
            producer = self._dataflow.executions[pending.invocation]
            # A consumer may notice the death of an executor before this gateway does, or after the producer is retried.
            is_retried = producer.attempt != pending.attempt or producer in repeated.completed
            is_stream = pending.output in producer.invocation.tensor_stream_names
            again = (execution, *repeated.completed)
            if is_stream and not self._is_repeatable(producer, again, is_retried=is_retried):
                name = producer.invocation.task_name
                return f"{name} cannot repeat its stream {pending.output!r} exactly, and {message}"
            if is_retried:
                continue
            if producer.is_finished:
                repeated.completed.append(producer)
            elif is_stream and producer.is_running and producer not in repeated.running:
                repeated.running.append(producer)
        return repeated

    def _is_repeatable(
        self, producer: InvocationExecution, consumers: Sequence[InvocationExecution], *, is_retried: bool
    ) -> bool:
        """Whether consumers may read a stream of tensors again that another attempt of the producer publishes.

        The stream must agree with the other outputs of the producer that have arrived.

        Args:
            is_retried: the other attempt has been started already.
        """
        invocation = producer.invocation
        if self._dataflow.is_stream_read(producer, consumers):
            return invocation.is_continuable
        if is_retried:
            return True
        if not invocation.ended:
            return _is_resumable(producer)
        return not producer.has_visible_output or invocation.is_continuable


def _is_resumable(execution: InvocationExecution) -> bool:
    """Whether another attempt continues the output exactly where this one ends."""
    invocation = execution.invocation
    if not execution.has_output or invocation.ended:  # A completed invocation runs again only for its tensors.
        return True
    return not invocation.has_early_values and invocation.is_continuable
