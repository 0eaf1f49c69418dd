"""Decides where the invocations of one request run, and what follows when an attempt fails.

An attempt that has not begun costs nothing, so another replica gets the invocation. If all have full queues, a request
that they have accepted before waits, and a new one fails. If the executor dies, the invocation is retried if it has no
output yet, or if its task can resume the output exactly. If the tensors of a completed invocation are lost before their
consumers have read them, it runs again; its values stay the same.

A tensor stays with the executor that produced it, and consumers fetch it from there. So an invocation starts once all
its producers have replicas, and tensors are released once no consumer can need them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING

from cornserve.gateway.errors import NO_ENDPOINTS
from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.decision_log import log_replica
from cornserve.gateway.observe.request_stats import RequestStats
from cornserve.gateway.request.dataflow import DataflowGraph
from cornserve.gateway.request.fan_out import MAX_RUNNING, FanOut
from cornserve.gateway.request.invocation_execution import InvocationExecution
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request.retry_policy import MAX_INPUT_LOSSES, RetryPolicy
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.request_route import RequestRoute
from cornserve.observe import logs
from cornserve.observe.redaction import redacted_traceback
from cornserve.task import TaskError
from cornserve.task.errors import InvocationError, TensorStreamError
from cornserve.task.references import Blob, Origin
from cornserve.wire.invocations import StartCommand
from cornserve_policies.routing import RoutedInvocation

if TYPE_CHECKING:  # It loads OpenTelemetry.
    from cornserve.gateway.observe.request_trace import RequestTrace

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
"""The delay before replicas that were unreachable or refused an invocation are tried again."""

_TOO_LATE = "not done by the request's deadline"


class Dispatcher:
    """Starts a request's invocations at replicas, and handles the outcomes of their attempts.

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
        self._graph: DataflowGraph[InvocationExecution] = DataflowGraph()
        self._is_recorded = False
        self._ids = ids
        self._route = route
        self._groups = route.groups
        self._replicas = replicas
        self._stats = stats
        self._trace = trace
        self._first_attempt = attempt
        self._arrived_us = arrived_us
        self._deadline = deadline
        self._retries = RetryPolicy()
        self._fan_outs: dict[str, FanOut] = {}
        """The invocations of the request by their executor groups."""
        self._is_starting_held = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_at(deadline, self._expire)
        self._progress: asyncio.Future[None] | None = None
        self._starting: set[asyncio.Task[None]] = set()
        replicas.acquire_route(route)

    def close(self) -> None:
        """Cancels all running invocations and releases all tensors."""
        self._timer.cancel()
        for task in self._starting:
            task.cancel()
        for execution in self.executions:
            execution.release()
            execution.cancel()
        self._fan_outs.clear()
        self._graph.clear()  # breaks the reference cycle: executions refer to this dispatcher
        self._replicas.release_route(self._route)

    @property
    def executions(self) -> Sequence[InvocationExecution]:
        """The executions of all invocations, in the order of the invocations' indices."""
        return self._graph.nodes

    @property
    def next_attempt(self) -> int:
        """An attempt number that no invocation has used."""
        return max((execution.attempt + 1 for execution in self.executions), default=self._first_attempt)

    def use_cell(self, name: str) -> None:
        """Sends the invocations to the executor groups of a cell of the plan."""
        self._groups = self._route.cell_groups[name]

    def next_progress(self) -> Awaitable[None]:
        """Returns a future that completes when the next value arrives or the next invocation ends."""
        self._progress = self._loop.create_future()
        return self._progress

    def dispatch(self, invocations: Sequence[RequestInvocation], *, streams: bool) -> None:
        """Starts all newly recorded invocations concurrently. Consumers wait for tensors in their executors."""
        for invocation in invocations:
            if invocation.executor_key not in self._groups:
                if invocation.executor_key in self._route.options:
                    raise TaskError(
                        f"the plan of the app has no replicas of {invocation.task_name} for this request: make it "
                        "again for a workload with such requests, and deploy it"
                    )
                raise TaskError(
                    f"unit task {invocation.task_name} is not deployed: create it in post_init and assign it to an "
                    "attribute of the task that invokes it"
                )
            self._check_streams(invocation)
        added = []
        for invocation in invocations:
            key = invocation.executor_key
            self._stats.record_invocation(self._groups[key], key, invocation.size.tokens)
            execution = InvocationExecution(
                invocation, self, self._stats, self._trace, attempt=self._first_attempt, streams=streams
            )
            self._graph.add(invocation, execution)
            added.append(execution)
        for execution in added:  # in order of recording, as consumers need the endpoints of their producers
            self._start(execution)

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
                for consumer in self._graph.consumers(ended.invocation):
                    if not consumer.is_finished:
                        consumer.fail(error)
                        unhandled.append(consumer)
            for producer in self._graph.producers(ended.invocation):
                self._release_if_unneeded(producer)
                if self._discard_unread_streams(producer, ended):
                    unhandled.append(producer)
            self._fan_out(ended).on_ended(ended)
        self._start_held()
        self._notify_progress()

    def on_failed(self, execution: InvocationExecution, code: str, message: str) -> None:
        if execution.replica is not None:
            execution.refused_by.add(execution.replica.endpoint)
            if code == "ABORTED":
                self._retries.dead_replicas.add(execution.replica)
        has_replica = code == "RESOURCE_EXHAUSTED" and self._select_replica(execution) is not None
        if code == "RESOURCE_EXHAUSTED" and not has_replica and self._wait_for_queue(execution):
            return
        is_exact = code != "ABORTED" or not self._is_stream_read(execution) or execution.invocation.is_continuable
        if self._retries.allows(execution, code, has_replica=has_replica) and is_exact:
            self._retry(execution)
        else:
            self._fail(execution, code, message)

    def _wait_for_queue(self, execution: InvocationExecution) -> bool:
        """Starts an execution later, because the queues are full. Returns whether the request has been accepted."""
        fan_out = self._fan_out(execution)
        fan_out.on_refused(execution)
        if not fan_out.is_accepted:
            return False
        execution.prepare_retry()
        if fan_out.is_full:
            fan_out.hold(execution)
        else:
            self._start_later(execution)
        return True

    def on_inputs_lost(self, execution: InvocationExecution, inputs: Sequence[int], message: str) -> None:
        if not execution.is_resumable:
            self._fail(execution, "ABORTED", f"its inputs were lost after it had sent output: {message}")
            return
        execution.input_losses += 1
        if execution.input_losses > MAX_INPUT_LOSSES:
            self._fail(execution, "ABORTED", f"its inputs were lost {execution.input_losses} times: {message}")
            return
        execution.prepare_retry()
        rerun, restarted = [], []
        for pending in (execution.inputs[index].pending for index in inputs):
            producer = self.executions[pending.invocation]
            # A consumer may notice the death of an executor before this gateway does, or after the producer is retried.
            is_retried = producer.attempt != pending.attempt
            is_stream = pending.output in producer.invocation.tensor_stream_names
            if is_stream and not self._is_repeatable(producer, execution, is_retried=is_retried):
                output = f"{producer.invocation.task_name} cannot repeat its stream {pending.output!r} exactly"
                self._fail(execution, "ABORTED", f"{output}, and {message}")
                return
            if is_retried:
                continue
            if producer.is_finished:
                producer.prepare_retry()
                rerun.append(producer)
            elif is_stream and producer.is_running and producer not in restarted:
                restarted.append(producer)
        for producer in rerun:
            self._start(producer)
        for producer in restarted:
            self._retry(producer)
        if not self._fail_early(execution):
            self._start_later(execution)

    def _check_streams(self, invocation: RequestInvocation) -> None:
        """Raises `TensorStreamError` if the producer of a stream of tensors has been dispatched without its consumer.

        The producer would wait for the consumer, and `invoke` for the producer.
        """
        for origin in self._consumed_streams(invocation):
            rule = "call the consumer of a TensorStream before `invoke` waits for a value"
            raise TensorStreamError(invocation.task_name, *origin, rule)

    def _consumed_streams(
        self, invocation: RequestInvocation, producer: InvocationExecution | None = None
    ) -> list[Origin]:
        """Returns the streams of tensors that an invocation consumes, of one producer or all that are dispatched."""
        count = len(self.executions)
        return [
            origin
            for origin in invocation.origins
            if origin.invocation < count
            and (producer is None or origin.invocation == producer.invocation.index)
            and origin.output in self.executions[origin.invocation].invocation.tensor_stream_names
        ]

    def _requested_streams(self, producer: InvocationExecution) -> list[str]:
        """Returns the streams of tensors that unfinished invocations consume."""
        consumers = self._graph.consumers(producer.invocation)
        origins = (self._consumed_streams(each.invocation, producer) for each in consumers if not each.is_finished)
        return sorted({origin.output for found in origins for origin in found})

    def _discard_unread_streams(self, producer: InvocationExecution, consumer: InvocationExecution) -> bool:
        """Stops the streams that an ended consumer has read. Returns whether the producer has ended therefore."""
        outputs = [origin.output for origin in self._consumed_streams(consumer.invocation, producer)]
        if not outputs or producer.is_finished:
            return False
        if producer.invocation.has_only_tensor_streams and not self._requested_streams(producer):
            producer.end_unread()
            return True
        producer.discard_streams(outputs)
        return False

    def _is_repeatable(self, producer: InvocationExecution, consumer: InvocationExecution, *, is_retried: bool) -> bool:
        """Whether `consumer` may read a stream of tensors again that another attempt of the producer publishes.

        Args:
            is_retried: the other attempt has been started already.
        """
        if self._is_stream_read(producer, consumer):
            return producer.invocation.is_continuable
        return is_retried or producer.is_repeatable

    def _is_stream_read(self, producer: InvocationExecution, repeated: InvocationExecution | None = None) -> bool:
        """Whether results of a producer of streams are part of the output of a consumer, which may have been read.

        Args:
            repeated: a consumer that will run again.
        """
        return bool(producer.invocation.tensor_stream_names) and any(
            consumer.has_visible_output
            or (consumer.is_finished and consumer.invocation.error is None and consumer is not repeated)
            for consumer in self._graph.consumers(producer.invocation)
        )

    def _notify_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    def _retry(self, execution: InvocationExecution) -> None:
        """Starts the next attempt. Consumers that wait for tensors of the abandoned attempt are retried as well."""
        abandoned = [(execution, execution.attempt)]
        execution.prepare_retry()
        self._start(execution)
        while abandoned:
            producer, attempt = abandoned.pop()
            for consumer in self._consumers_waiting_for(producer, attempt):
                abandoned.append((consumer, consumer.attempt))
                consumer.prepare_retry()
                self._start(consumer)

    def _consumers_waiting_for(self, producer: InvocationExecution, attempt: int) -> Iterator[InvocationExecution]:
        awaited = producer.invocation.index, attempt
        for consumer in self._graph.consumers(producer.invocation):
            if consumer.is_running and not consumer.has_output:
                pending = (given.pending for given in consumer.inputs if given.HasField("pending"))
                if any((tensor.invocation, tensor.attempt) == awaited for tensor in pending):
                    yield consumer

    def _fail(self, execution: InvocationExecution, code: str, message: str) -> None:
        invocation = execution.invocation
        execution.fail(InvocationError(invocation.task_name, invocation.index, code, message))
        self.on_completed(execution)

    def _release_if_unneeded(self, producer: InvocationExecution) -> None:
        if self._is_recorded and all(consumer.is_finished for consumer in self._graph.consumers(producer.invocation)):
            producer.release()

    def _start(self, execution: InvocationExecution) -> None:
        """Starts a waiting execution now, or as soon as a replica is available."""
        if not execution.is_waiting or self._fail_early(execution) or self._try_start(execution):
            return
        if any(producer.is_waiting for producer in self._graph.producers(execution.invocation)):
            return  # The producer starts its consumers.
        if not self._fail_replaced(execution):
            self._start_later(execution)

    def _fail_early(self, execution: InvocationExecution) -> bool:
        """Fails an execution that cannot succeed. Returns whether it is finished."""
        if self._loop.time() >= self._deadline:
            self._fail(execution, "DEADLINE_EXCEEDED", _TOO_LATE)
        elif self._retries.is_exhausted:
            self._fail(execution, "ABORTED", f"{len(self._retries.dead_replicas)} executors died during this request")
        else:
            for producer in self._graph.producers(execution.invocation):
                if producer.invocation.error is not None and not execution.is_finished:
                    execution.fail(producer.invocation.error)
                    self.on_completed(execution)
        return execution.is_finished

    def _fail_replaced(self, execution: InvocationExecution) -> bool:
        """Fails an execution of a group that no route contains any more, if none of its replicas can be reached."""
        is_replaced = self._select_replica(execution) is None and self._replicas.is_unrouted(self._group(execution))
        if is_replaced:
            self._fail(execution, "UNAVAILABLE", "the app version of this request has been replaced: send it again")
        return is_replaced

    def _try_start(self, execution: InvocationExecution) -> bool:
        """Starts the execution, and then its waiting consumers, if it and all its producers have replicas.

        Returns whether it has started, or waits for other invocations of the request to end.
        """
        producers = self._graph.producers(execution.invocation)
        if not all(producer.replica is not None for producer in producers):
            return False
        fan_out = self._fan_out(execution)
        if not producers and fan_out.is_full:  # A producer may need its consumers, and starts them.
            fan_out.hold(execution)
            return True
        replica = self._select_replica(execution)
        if replica is None:
            return False
        if self._route.policies.log_decisions:
            invocation, now, reason = execution.invocation, self._loop.time(), self._route.policies.routing
            log_replica(self._ids.public, invocation.index, execution.attempt, replica.load, now, reason)
        fan_out.add_running(execution)
        execution.start(replica, self._start_command(execution))
        for consumer in self._graph.consumers(execution.invocation):
            self._start(consumer)
        return True

    def _start_held(self) -> None:
        """Starts executions that waited for others to end."""
        if self._is_starting_held:
            return  # The caller fails one of them, and goes on with the next.
        self._is_starting_held = True
        for fan_out in list(self._fan_outs.values()):
            while (execution := fan_out.take_held()) is not None:
                self._start(execution)
        self._is_starting_held = False

    def _fan_out(self, execution: InvocationExecution) -> FanOut:
        group = self._group(execution)
        fan_out = self._fan_outs.get(group)
        if fan_out is None:
            replicas = self._replicas.replica_count(group, self._route.endpoints.get(group, ()))
            fan_out = self._fan_outs[group] = FanOut(MAX_RUNNING * max(1, replicas))
        return fan_out

    def _start_later(self, execution: InvocationExecution) -> None:
        task = asyncio.create_task(self._start_when_available(execution))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start_when_available(self, execution: InvocationExecution) -> None:
        try:
            while execution.is_waiting:
                await self._replicas.wait_for_change(RETRY_SECONDS)
                execution.refused_by.clear()
                if self._start_or_fail(execution):
                    return
                problem = await self._replicas.start_problem(self._group(execution))
                if problem and execution.is_waiting:
                    self._fail(execution, "UNAVAILABLE", problem)
        except Exception as error:
            log.error("cannot start an invocation", extra=logs.traceback_field(redacted_traceback(error)))
            self._fail(execution, "INTERNAL", f"the gateway cannot start it: {error!r}")

    def _start_or_fail(self, execution: InvocationExecution) -> bool:
        """Starts a waiting execution if a replica is available, and fails it if none will be soon.

        Returns whether another attempt to start it is unnecessary.
        """
        if not execution.is_waiting or self._try_start(execution) or self._fail_replaced(execution):
            return True
        group = self._group(execution)
        outage = self._replicas.outage(group)
        if outage:
            self._fail(execution, NO_ENDPOINTS if self._replicas.is_missing(group) else "UNAVAILABLE", outage)
        return bool(outage)

    def _group(self, execution: InvocationExecution) -> str:
        """Returns the executor group that runs an invocation."""
        return self._groups[execution.invocation.executor_key]

    def _select_replica(self, execution: InvocationExecution) -> ReplicaConnection | None:
        group, invocation = self._group(execution), execution.invocation
        return self._replicas.select(
            group,
            self._route.routing,
            RoutedInvocation(self._ids.random_key, invocation.index, invocation.size),
            unrouted_endpoints=self._route.endpoints.get(group, ()),
            exclude=execution.refused_by,
        )

    def _start_command(self, execution: InvocationExecution) -> StartCommand:
        invocation = execution.invocation
        command = StartCommand()
        start = command.message.start
        start.request_id = self._ids.unique
        if self._ids.public != self._ids.unique:
            start.client_request_id = self._ids.public
        start.invocation = invocation.index
        start.attempt = execution.attempt
        start.timeout_ms = max(1, int(1000 * (self._deadline - self._loop.time())))
        start.request = invocation.request
        start.tokens = invocation.size.tokens
        start.arrived_us = self._arrived_us
        for reference in invocation.inputs:
            if isinstance(reference, Blob):
                command.add_blob(reference.data)
            else:
                producer = self.executions[reference.invocation]
                pending = command.add_pending()
                pending.invocation, pending.output = reference.invocation, reference.output
                pending.attempt = producer.attempt
                pending.endpoint = "" if producer.replica is None else producer.replica.endpoint
        if execution.streams:
            start.outputs.extend(execution.streams)
            start.delivered.extend(execution.delivered())
        if invocation.tensor_stream_names:
            start.outputs.extend(self._requested_streams(execution))
        return command

    def _expire(self) -> None:
        for execution in self.executions:
            if execution.is_waiting and not self._fan_out(execution).is_accepted:
                task = execution.invocation.task_name
                self._fail(execution, "UNAVAILABLE", f"no executor of {task} became ready before the deadline")
            elif not execution.is_finished:
                self._fail(execution, "DEADLINE_EXCEEDED", _TOO_LATE)
