"""Runs the invocations of one request, and decides what follows when an attempt ends.

`InvocationPlacement` starts them at replicas, and `RetryPolicy` is the rule by which they run again. Tensors are
released once their consumers have read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.request_stats import RequestStats
from cornserve.gateway.request.dataflow import Dataflow
from cornserve.gateway.request.invocation_execution import InvocationExecution
from cornserve.gateway.request.placement import InvocationPlacement
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request.retry_policy import RetryPolicy
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.request_route import RequestRoute
from cornserve.task.errors import InvocationError
from cornserve_policies.path_table import CellPath

if TYPE_CHECKING:  # It loads OpenTelemetry.
    from cornserve.gateway.observe.request_trace import RequestTrace

_TOO_LATE = "not done by the request's deadline"


class Dispatcher:
    """Starts a request's invocations, and handles the outcomes of their attempts.

    Args:
        attempt: the number of each invocation's first attempt.
        arrived_us: when the request arrived, in microseconds since the epoch.
        deadline: when everything that still runs fails, by the event loop's clock.
    """

    def __init__(
        self,
        ids: RequestIds,
        route: RequestRoute,
        replicas: ReplicaPool,
        stats: RequestStats,
        trace: RequestTrace | None,
        *,
        attempt: int,
        arrived_us: int,
        deadline: float,
    ) -> None:
        self._dataflow = Dataflow()
        self._is_recorded = False
        self._route = route
        self._replicas = replicas
        self._stats = stats
        self._trace = trace
        self._first_attempt = attempt
        self._deadline = deadline
        self._arrived_us = arrived_us
        self._retries = RetryPolicy(self._dataflow)
        self._placement = InvocationPlacement(
            ids,
            route,
            replicas,
            self._dataflow,
            arrived_us=arrived_us,
            deadline=deadline,
            fail_early=self._fail_early,
            fail=self._fail,
        )
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_at(deadline, self._expire)
        self._progress: asyncio.Future[None] | None = None
        replicas.acquire_route(route)

    def close(self) -> None:
        """Cancels all running invocations and releases all tensors."""
        self._timer.cancel()
        self._placement.close()
        for execution in self.executions:
            execution.release()
            execution.release_handed_over_state()
            execution.cancel()
        self._dataflow.clear()
        del self._placement  # breaks the reference cycles: it calls this dispatcher, like the executions
        self._replicas.release_route(self._route)

    @property
    def executions(self) -> Sequence[InvocationExecution]:
        """The executions of all invocations, in the order of the invocations' indices."""
        return self._dataflow.executions

    @property
    def next_attempt(self) -> int:
        """An attempt number that no invocation has used."""
        return max((execution.attempt + 1 for execution in self.executions), default=self._first_attempt)

    def use_path(self, drawn: CellPath) -> None:
        """Sends the invocations to the executor groups of a cell of the plan, with the bindings of a path."""
        self._placement.use_path(drawn)

    def next_progress(self) -> Awaitable[None]:
        """Returns a future that completes when the next value arrives or the next invocation ends."""
        self._progress = self._loop.create_future()
        return self._progress

    def dispatch(self, invocations: Sequence[RequestInvocation], *, streams: bool) -> None:
        """Starts all newly recorded invocations concurrently. Consumers wait for tensors in their executors."""
        groups = []
        for invocation in invocations:
            groups.append(self._placement.group(invocation))
            self._dataflow.check_streams(invocation)
        added = []
        for invocation, group in zip(invocations, groups, strict=True):
            self._stats.record_invocation(group, invocation.executor_key, invocation.size.tokens)
            execution = InvocationExecution(
                invocation, group, self, self._stats, self._trace, attempt=self._first_attempt, streams=streams
            )
            execution.due_us = self._stats.due_us(group, self._arrived_us, invocation.size.tokens)
            self._dataflow.add(execution)
            producers = self._dataflow.producers(execution)
            self._stats.record_edges((each.group for each in producers), group)
            self._placement.add(execution)
            added.append(execution)
        for execution in added:  # in order of recording, as consumers need the endpoints of their producers
            self._placement.start(execution)

    def end_recording(self) -> None:
        """Releases tensors without unfinished consumers, because no more invocations follow."""
        self._is_recorded = True
        for execution in self.executions:
            self._release_if_unneeded(execution)

    def on_value(self) -> None:
        self._notify_progress()

    def on_completed(self, execution: InvocationExecution) -> None:
        """Fails the consumers of a failed execution, and releases the tensors that nothing consumes any more."""
        unhandled = [execution]
        while unhandled:
            ended = unhandled.pop()
            if (error := ended.invocation.error) is not None:
                for consumer in self._dataflow.consumers(ended):
                    if not consumer.is_finished:
                        consumer.fail(error)
                        unhandled.append(consumer)
            for producer in self._dataflow.producers(ended):
                self._release_if_unneeded(producer)
                if self._discard_unread_streams(producer, ended):
                    unhandled.append(producer)
            self._release_if_taken(ended)
            self._placement.on_ended(ended)
        self._placement.start_waiting()
        self._replicas.close_unrouted()
        self._notify_progress()

    def on_failed(self, execution: InvocationExecution, code: str, message: str) -> None:
        if execution.replica is not None and code != "HANDED_OVER":
            execution.refused_by.add(execution.replica.endpoint)
            if code == "ABORTED":
                self._retries.count_death(execution.replica)
        has_replica = code == "RESOURCE_EXHAUSTED" and self._placement.has_replica(execution)
        if code == "RESOURCE_EXHAUSTED" and not has_replica and self._placement.wait_for_queue(execution):
            return
        if self._retries.allows(execution, code, has_replica=has_replica):
            self._retry(execution, is_hand_over=code == "HANDED_OVER")
            if code == "HANDED_OVER":
                execution.input_losses = 0  # Inputs that were released for this attempt may be lost for the next one.
                self._stats.record_move()
                self._replicas.close_unrouted()
        elif code == "RESOURCE_EXHAUSTED" and execution.has_output:  # The client reads a stream that continues.
            execution.prepare_retry()
            self._placement.start_later(execution)
        else:
            self._fail(execution, code, message)

    def on_replica_leaving(self, execution: InvocationExecution) -> None:
        """Lets the executor hand a stream over to another replica, so that it can exit soon."""
        if self._placement.has_replica(execution) and self._retries.can_be_handed_over(execution):
            execution.hand_over()

    def on_inputs_taken(self, execution: InvocationExecution) -> None:
        for producer in self._dataflow.producers(execution):
            self._release_if_taken(producer)
        self._replicas.close_unrouted()

    def on_inputs_lost(self, execution: InvocationExecution, inputs: Sequence[int], message: str) -> None:
        execution.input_losses += 1
        producers = self._retries.repeat_producers(execution, inputs, message)
        if isinstance(producers, str):
            self._fail(execution, "ABORTED", producers)
            return
        for repeated in (execution, *producers.completed):
            repeated.prepare_retry()
        for producer in producers.completed:
            self._placement.start(producer)
        for producer in producers.running:
            self._retry(producer)
        if not self._fail_early(execution):
            self._placement.start_later(execution)

    def _discard_unread_streams(self, producer: InvocationExecution, consumer: InvocationExecution) -> bool:
        """Stops the streams that an ended consumer has read. Returns whether the producer has ended therefore."""
        outputs = self._dataflow.consumed_streams(consumer, producer)
        if not outputs or producer.is_finished:
            return False
        if producer.invocation.has_only_tensor_streams and not self._dataflow.requested_streams(producer):
            producer.end_unread()
            return True
        producer.discard_streams(outputs)
        return False

    def _notify_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    def _retry(self, execution: InvocationExecution, *, is_hand_over: bool = False) -> None:
        """Starts the next attempt. Consumers that wait for tensors of the abandoned attempt are retried as well."""
        abandoned = [(execution, execution.attempt)]
        execution.prepare_retry(is_hand_over=is_hand_over)
        self._placement.start(execution)
        while abandoned:
            producer, attempt = abandoned.pop()
            for consumer in self._dataflow.consumers_waiting_for(producer, attempt):
                abandoned.append((consumer, consumer.attempt))
                consumer.prepare_retry()
                self._placement.start(consumer)

    def _fail(self, execution: InvocationExecution, code: str, message: str) -> None:
        invocation = execution.invocation
        execution.fail(InvocationError(invocation.task_name, invocation.index, code, message))
        self.on_completed(execution)

    def _fail_early(self, execution: InvocationExecution) -> bool:
        """Fails an execution that cannot succeed. Returns whether it is finished."""
        if self._loop.time() >= self._deadline:
            self._fail(execution, "DEADLINE_EXCEEDED", _TOO_LATE)
        elif self._retries.is_exhausted:
            self._fail(execution, "ABORTED", f"{self._retries.deaths} executors died during this request")
        else:
            for producer in self._dataflow.producers(execution):
                if producer.invocation.error is not None and not execution.is_finished:
                    execution.fail(producer.invocation.error)
                    self.on_completed(execution)
        return execution.is_finished

    def _release_if_unneeded(self, producer: InvocationExecution) -> None:
        if self._is_recorded and all(consumer.is_finished for consumer in self._dataflow.consumers(producer)):
            producer.release()

    def _release_if_taken(self, producer: InvocationExecution) -> None:
        """Releases tensors that their present consumers do not read any more.

        A later consumer, or another attempt of one, finds them lost, and the producer runs again.
        """
        consumers = self._dataflow.consumers(producer)
        if any(consumer.has_taken(producer) for consumer in consumers) and all(
            consumer.is_finished or consumer.has_taken(producer) for consumer in consumers
        ):
            producer.release()

    def _expire(self) -> None:
        for execution in self.executions:
            if execution.is_waiting and not self._placement.is_accepted(execution):
                task = execution.invocation.task_name
                self._fail(execution, "UNAVAILABLE", f"no executor of {task} became ready before the deadline")
            elif not execution.is_finished:
                self._fail(execution, "DEADLINE_EXCEEDED", _TOO_LATE)
