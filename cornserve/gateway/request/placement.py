"""Starts the invocations of one request at replicas.

A tensor stays with the executor that produced it, and consumers fetch it from there: an invocation starts once all its
producers have replicas. With late binding, it starts once its producer has ended, a replica has capacity for it, and
the invocations that arrived earlier have started. If all replicas have full queues, a request that they have accepted
before waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from cornserve.gateway.errors import NO_ENDPOINTS
from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.decision_log import log_replica
from cornserve.gateway.request.dataflow import Dataflow
from cornserve.gateway.request.fan_out import MAX_RUNNING, FanOut
from cornserve.gateway.request.invocation_execution import InvocationExecution
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request.replica_pool import OnChoice, ReplicaPool
from cornserve.gateway.request.start_command import start_command
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.request_route import RequestRoute
from cornserve.observe import logs
from cornserve.observe.redaction import redacted_traceback
from cornserve.task import TaskError
from cornserve.wire.invocations import StartCommand
from cornserve_plan.fields import Binding
from cornserve_policies.board import Board, ReplicaLoad
from cornserve_policies.invocation_queue import MAX_QUEUED, Arrival
from cornserve_policies.path_table import CellPath
from cornserve_policies.replica_routing import RoutedInvocation
from cornserve_policies.retries import PLACEMENT_SECONDS

log = logging.getLogger(__name__)

_QUEUE_IS_FULL: Final = f"{MAX_QUEUED} invocations with late binding wait for its executors"


class InvocationPlacement:
    """Chooses the replicas of a request's invocations.

    Args:
        arrived_us: when the request arrived, in microseconds since the epoch.
        deadline: when everything that still runs fails, by the event loop's clock.
        fail_early: fails an execution that cannot succeed. Returns whether it is finished.
        fail: fails an execution with a code and a message.
    """

    def __init__(
        self,
        ids: RequestIds,
        route: RequestRoute,
        replicas: ReplicaPool,
        dataflow: Dataflow,
        *,
        arrived_us: int,
        deadline: float,
        fail_early: Callable[[InvocationExecution], bool],
        fail: Callable[[InvocationExecution, str, str], None],
    ) -> None:
        self._ids = ids
        self._route = route
        self._groups = route.groups
        self._bindings: Mapping[str, Binding] = {}
        """The bindings of the plan, by the executor's key."""
        self._replicas = replicas
        self._dataflow = dataflow
        self._arrived_us = arrived_us
        self._deadline = deadline
        self._fail_early = fail_early
        self._fail = fail
        self._fan_outs: dict[str, FanOut] = {}
        """The invocations of the request by their executor groups."""
        self._awaited: dict[InvocationExecution, InvocationExecution] = {}
        """The producer of each execution with late binding."""
        self._queued: dict[InvocationExecution, tuple[str, Arrival]] = {}
        """The executions that wait for capacity: their groups, and their places in the queues."""
        self._is_starting_waiting = False
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for task in self._starting:
            task.cancel()
        for group, arrival in self._queued.values():
            self._replicas.queues.remove(group, arrival)
        self._queued.clear()
        self._fan_outs.clear()
        self._awaited.clear()

    def use_path(self, drawn: CellPath) -> None:
        """Sends the invocations to the executor groups of a cell of the plan, with the bindings of a path."""
        self._groups = self._route.cell_groups[drawn.cell]
        self._bindings = self._route.bindings_of(drawn)

    def group(self, invocation: RequestInvocation) -> str:
        """Returns the executor group that runs an invocation. Raises `TaskError` if no group does."""
        group = self._groups.get(invocation.executor_key)
        if group is not None:
            return group
        if invocation.executor_key in self._route.options:
            raise TaskError(
                f"the plan of the app has no replicas of {invocation.task_name} for this request: make it again for a "
                "workload with such requests, and deploy it"
            )
        raise TaskError(
            f"unit task {invocation.task_name} is not deployed: create it in post_init and assign it to an attribute "
            "of the task that invokes it"
        )

    def add(self, execution: InvocationExecution) -> None:
        """Decides whether the replica of an execution is selected when its only producer has ended.

        With several producers, the tensors of the first ones could fill the memory that the others need. A stream needs
        its reader from the start.
        """
        producers = self._dataflow.producers(execution)
        binding = self._bindings.get(execution.invocation.executor_key, self._route.policies.binding)
        if binding == "late" and len(producers) == 1:
            (producer,) = producers
            if not self._dataflow.consumed_streams(execution, producer):
                self._awaited[execution] = producer

    def start(self, execution: InvocationExecution) -> None:
        """Starts a waiting execution now, or as soon as a replica is available."""
        if not execution.is_waiting or self._fail_early(execution) or self._try_start(execution):
            return
        if any(producer.is_waiting for producer in self._dataflow.producers(execution)) or self._awaits_producer(
            execution
        ):
            return  # The producer starts its consumers.
        if not self._fail_replaced(execution):
            self.start_later(execution)

    def start_later(self, execution: InvocationExecution) -> None:
        """Starts a waiting execution as soon as a replica is available."""
        task = asyncio.create_task(self._start_when_available(execution))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def has_replica(self, execution: InvocationExecution) -> bool:
        """Whether a reachable replica has not refused the execution."""
        return self._select_replica(execution) is not None

    def is_accepted(self, execution: InvocationExecution) -> bool:
        """Whether the execution waits for capacity, or the executors of its group have accepted invocations of the
        request, so that it can wait."""
        return execution in self._queued or self._fan_out(execution).is_accepted

    def wait_for_queue(self, execution: InvocationExecution) -> bool:
        """Starts an execution later, because the queues are full. Returns whether the request has been accepted."""
        fan_out = self._fan_out(execution)
        fan_out.on_refused(execution)
        if not fan_out.is_accepted:
            return False
        execution.prepare_retry()
        if fan_out.is_full:
            fan_out.add_waiting(execution)
        else:
            self.start_later(execution)
        return True

    def on_ended(self, execution: InvocationExecution) -> None:
        """Starts the consumers that waited for the end of an execution."""
        self._fan_out(execution).on_ended(execution)
        for consumer in self._dataflow.consumers(execution):
            if consumer in self._awaited:
                self.start(consumer)

    def start_waiting(self) -> None:
        """Starts executions that waited for others to end."""
        if self._is_starting_waiting:
            return  # The caller fails one of them, and goes on with the next.
        self._is_starting_waiting = True
        for fan_out in list(self._fan_outs.values()):
            while (execution := fan_out.take_waiting()) is not None:
                self.start(execution)
        self._is_starting_waiting = False

    def _try_start(self, execution: InvocationExecution) -> bool:
        """Starts the execution, and then its waiting consumers, if it and all its producers have replicas.

        Returns whether it has started, waits for other invocations, or has been refused.
        """
        producers = self._dataflow.producers(execution)
        if not all(producer.replica is not None for producer in producers) or self._awaits_producer(execution):
            return False
        fan_out = self._fan_out(execution)
        if not producers and fan_out.is_full:  # A producer may need its consumers, and starts them.
            fan_out.add_waiting(execution)
            return True
        has_turn = execution not in self._awaited or execution.has_output  # A client reads a stream that continues.
        return self._start_at_replica(execution) if has_turn else self._start_in_turn(execution)

    def _start_at_replica(self, execution: InvocationExecution, *, needs_capacity: bool = False) -> bool:
        """Starts an execution, and then its waiting consumers. Returns False if no replica is available."""
        log_choice = partial(self._log_choice, execution.attempt) if self._route.policies.log_decisions else None
        replica = self._select_replica(execution, log_choice, needs_capacity=needs_capacity)
        if replica is None:
            return False
        self._fan_out(execution).add_running(execution)
        execution.start(replica, self._command(execution))
        if producers := self._dataflow.producers(execution):
            replicas = self._replica_count(self._group(execution))
            for producer in producers:
                execution.bind_to(producer, replicas)
        for consumer in self._dataflow.consumers(execution):
            self.start(consumer)
        return True

    def _start_in_turn(self, execution: InvocationExecution) -> bool:
        """Starts an execution with late binding on a replica with capacity, or queues it until it has its turn.

        Returns False if no replica is available, with or without capacity.
        """
        if execution in self._queued:
            return True
        group = self._group(execution)
        if self._replicas.queues.is_empty(group) and self._start_at_replica(execution, needs_capacity=True):
            return True
        if not self.has_replica(execution):
            return False
        arrival = Arrival(self._arrived_us, self._ids.unique, execution.invocation.index)
        if self._replicas.queues.add(group, arrival, partial(self._start_queued, execution)):
            self._queued[execution] = group, arrival
        elif not self.wait_for_queue(execution):
            self._fail(execution, "RESOURCE_EXHAUSTED", _QUEUE_IS_FULL)
        return True

    def _start_queued(self, execution: InvocationExecution) -> bool:
        """Starts an execution whose turn it is, if a replica has capacity. Returns whether it leaves the queue."""
        try:
            is_gone = not execution.is_waiting or self._awaits_producer(execution) or self._fail_early(execution)
            if not is_gone and not self._start_at_replica(execution, needs_capacity=True):
                if self.has_replica(execution):
                    return False
                self.start_later(execution)
        except Exception as error:
            self._fail_to_start(execution, error)
        self._queued.pop(execution, None)
        return True

    def _awaits_producer(self, execution: InvocationExecution) -> bool:
        """Whether an execution with late binding has to wait for the end of its producer."""
        producer = self._awaited.get(execution)
        return producer is not None and not producer.is_finished

    def _fail_replaced(self, execution: InvocationExecution) -> bool:
        """Fails an execution that no replica can run, if its group does not get any more."""
        is_replaced = not self.has_replica(execution) and not self._replicas.may_get_replicas(self._group(execution))
        if is_replaced:
            self._fail(execution, "UNAVAILABLE", "the app version of this request has been replaced: send it again")
        return is_replaced

    async def _start_when_available(self, execution: InvocationExecution) -> None:
        try:
            while execution.is_waiting:
                await self._replicas.wait_for_change(PLACEMENT_SECONDS)
                execution.refused_by.clear()
                if self._start_or_fail(execution):
                    return
                problem = await self._replicas.start_problem(self._group(execution))
                if problem and execution.is_waiting:
                    self._fail(execution, "UNAVAILABLE", problem)
        except Exception as error:
            self._fail_to_start(execution, error)

    def _fail_to_start(self, execution: InvocationExecution, error: Exception) -> None:
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

    def _fan_out(self, execution: InvocationExecution) -> FanOut:
        group = self._group(execution)
        fan_out = self._fan_outs.get(group)
        if fan_out is None:
            fan_out = self._fan_outs[group] = FanOut(MAX_RUNNING * max(1, self._replica_count(group)))
        return fan_out

    def _replica_count(self, group: str) -> int:
        return self._replicas.replica_count(group, self._route.endpoints.get(group, ()))

    def _group(self, execution: InvocationExecution) -> str:
        return self._groups[execution.invocation.executor_key]

    def _select_replica(
        self, execution: InvocationExecution, on_choice: OnChoice | None = None, *, needs_capacity: bool = False
    ) -> ReplicaConnection | None:
        group, invocation = self._group(execution), execution.invocation
        return self._replicas.select(
            group,
            self._route.routing,
            RoutedInvocation(self._ids.random_key, invocation.index, invocation.size),
            unrouted_endpoints=self._route.endpoints.get(group, ()),
            exclude=execution.refused_by,
            needs_capacity=needs_capacity,
            on_choice=on_choice,
        )

    def _command(self, execution: InvocationExecution) -> StartCommand:
        seconds = self._deadline - self._loop.time()
        return start_command(execution, self._ids, self._dataflow, arrived_us=self._arrived_us, seconds=seconds)

    def _log_choice(
        self, attempt: int, invocation: RoutedInvocation, board: Board, now: float, chosen: ReplicaLoad
    ) -> None:
        log_replica(self._ids.public, invocation, attempt, board, now, chosen, self._route.policies.routing)
