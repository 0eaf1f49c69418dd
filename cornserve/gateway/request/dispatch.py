"""The executions of one request: where they run, until when, and how many executors they may cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from cornserve.app.record import Route
from cornserve.gateway.observe.meter import Meter
from cornserve.gateway.request.execution import Execution
from cornserve.gateway.request.graph import Graph
from cornserve.gateway.request.replica import Replica
from cornserve.gateway.request.replicas import Replicas
from cornserve.observe.redaction import redacted_traceback
from cornserve.task import TaskError
from cornserve.task.recording import Invocation
from cornserve.task.replayable_random import ReplayableRandom
from cornserve.v1 import executor_pb2 as pb

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
"""How soon replicas that could not be reached, or refused, are tried again."""

_TOO_LATE = "not done by the request's deadline"

MAX_LOSSES = 1
"""Executors that may die under one request. One poisonous request must not take the fleet."""


class Dispatch:
    """Sends a request's invocations to replicas, and elsewhere when one is lost.

    Args:
        attempt: the first attempt of each invocation.
        arrived_us: when the request arrived, by the system's clock.
        deadline: when everything that still runs fails, by the event loop's clock.
    """

    def __init__(
        self,
        request_id: str,
        route: Route,
        replicas: Replicas,
        meter: Meter,
        *,
        attempt: int,
        arrived_us: int,
        deadline: float,
    ) -> None:
        self.meter = meter
        self._graph = Graph()
        self._progress: asyncio.Future[None] | None = None
        self._request_id = request_id
        self._route = route
        self._replicas = replicas
        self._first_attempt = attempt
        self._lost: set[Replica] = set()
        """Executors that have died under this request."""
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._arrived_us = arrived_us
        self._timer = self._loop.call_at(deadline, self._expire)
        self._waiting: set[asyncio.Task[None]] = set()
        replicas.hold(route)

    def close(self) -> None:
        """Cancels whatever still runs."""
        self._timer.cancel()
        for waiting in self._waiting:
            waiting.cancel()
        self._graph.clear()
        self._replicas.release(self._route)

    def progress(self) -> Awaitable[None]:
        """Is over once something more has come back."""
        self._progress = self._loop.create_future()
        return self._progress

    def on_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    @property
    def next_attempt(self) -> int:
        """One that no invocation has had."""
        return max((execution.attempt + 1 for execution in self.executions), default=self._first_attempt)

    @property
    def executions(self) -> Sequence[Execution]:
        """By the indices of their invocations."""
        return self._graph.executions

    def send(self, invocations: Sequence[Invocation], *, streams: bool) -> None:
        """All at once; consumers wait for their tensors at their executors."""
        new = [Execution(invocation, self, self._first_attempt, streams=streams) for invocation in invocations]
        for execution in new:
            if execution.invocation.task.key not in self._route.endpoints:
                raise TaskError(
                    f"{execution.invocation.task.name} is invoked but not deployed: unit tasks must be attributes of "
                    "their task, built in post_init"
                )
        self._graph.add(new)
        for execution in new:  # producers first: their consumers are told where they run
            self.start(execution)

    def complete(self) -> None:
        """Nothing more is going to be sent."""
        self._graph.complete()

    def start(self, execution: Execution) -> None:
        """Now, or as soon as there is a replica for it."""
        if not execution.waits_for_a_replica:  # it was started with its producers
            return
        if self._fails_early(execution) or self._starts_now(execution):
            return
        if self._choose(execution) is None and self._replicas.is_abandoned(execution.invocation.task.key):
            execution.fail("UNAVAILABLE", "the version of the app that the request began with has ended: send it again")
        else:
            self._wait_for(execution)

    def restart(self, execution: Execution, lost: Sequence[int]) -> None:
        """It has found inputs lost. Their producers run again, unless they do already: whoever takes a tensor may hear
        sooner than we that its executor has died."""
        for producer in self._graph.remake(execution, lost):
            self.start(producer)
        if not self._fails_early(execution):
            self._wait_for(execution)

    def redirect_consumers(self, producer: Execution, abandoned: int) -> None:
        """Those who wait for an attempt that has been given up wait for the next one instead."""
        for consumer in self._graph.waiting_for(producer, abandoned):
            consumer.start_anew()

    def on_end(self, execution: Execution) -> None:
        self._graph.end(execution)
        self.on_progress()

    def has_other(self, execution: Execution) -> bool:
        """Whether there is a replica that has not refused it."""
        return self._choose(execution) is not None

    def survives(self, loss: Replica | None) -> bool:
        """Takes note of an executor that has died under this request. False: the request is given up."""
        if loss is not None:
            self._lost.add(loss)
        return len(self._lost) <= MAX_LOSSES

    def _fails_early(self, execution: Execution) -> bool:
        """Whether there is no point in starting it."""
        if self._loop.time() >= self._deadline:
            execution.fail("DEADLINE_EXCEEDED", _TOO_LATE)
        elif len(self._lost) > MAX_LOSSES:
            execution.fail("ABORTED", f"{len(self._lost)} executors died under this request, which is given up")
        else:
            self._graph.pass_on_failure(execution)
        return execution.is_over

    def _wait_for(self, execution: Execution) -> None:
        waiting = asyncio.create_task(self._start_later(execution))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    async def _start_later(self, execution: Execution) -> None:
        try:
            while execution.waits_for_a_replica:
                await self._replicas.change(RETRY_SECONDS)
                execution.refused_by.clear()
                if execution.waits_for_a_replica:
                    self._starts_now(execution)
        except Exception as error:
            log.error("an invocation cannot be started:\n%s", redacted_traceback(error))
            execution.fail("INTERNAL", f"the gateway cannot start it: {error!r}")

    def _starts_now(self, execution: Execution) -> bool:
        """With it those that have waited to hear where it runs."""
        replica = self._choose(execution) if self._graph.has_placed_producers_of(execution) else None
        if replica is None:
            return False
        execution.start(replica, self._command(execution))
        for consumer in self._graph.unplaced_consumers_of(execution):
            self._starts_now(consumer)
        return True

    def _choose(self, execution: Execution) -> Replica | None:
        key = execution.invocation.task.key
        return self._replicas.choose(
            key,
            otherwise=self._route.endpoints[key],
            avoiding=execution.refused_by,
            draw=self._draw(execution) if self._route.spec.balance == "static" else None,
        )

    def _draw(self, execution: Execution) -> float:
        return ReplayableRandom(f"{self._request_id}/{execution.invocation.index}").uniform()

    def _expire(self) -> None:
        for execution in self.executions:
            if execution.waits_for_a_replica:
                execution.fail("UNAVAILABLE", f"no executor of {execution.invocation.task.name} became ready in time")
            elif not execution.is_over:
                execution.fail("DEADLINE_EXCEEDED", _TOO_LATE)

    def _command(self, execution: Execution) -> pb.Command:
        """Filled where it stands: protobuf copies messages that are put into others, and images with them."""
        invocation = execution.invocation
        command = pb.Command()
        start = command.start
        start.request_id = self._request_id
        start.invocation = invocation.index
        start.attempt = execution.attempt
        start.timeout_ms = max(1, int(1000 * (self._deadline - self._loop.time())))
        start.request = invocation.request
        start.arrived_us = self._arrived_us
        if invocation.inputs:
            self._graph.add_inputs(execution, start)
        if execution.channels:
            start.outputs.extend(execution.channels)
            start.delivered.extend(execution.delivered)
        return command
