"""The executions of one request, and which takes what of which.

A tensor stays with the executor that made it; its consumers fetch it there. So a consumer starts when it is known where
its producers run, and a producer's tensors are released when nobody can come for them any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from cornserve.gateway.request.execution import Execution
from cornserve.task.references import Blob, Origin
from cornserve.v1 import executor_pb2 as pb


class Graph:
    def __init__(self) -> None:
        self.executions: list[Execution] = []
        self._producers: list[list[Execution]] = []
        """Of each of them, those whose outputs it takes."""
        self._consumers: list[list[Execution]] = []
        """Of each of them, those that take its outputs."""
        self._is_complete = False

    def add(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            origins = execution.invocation.origins
            indices = sorted({origin.invocation for origin in origins}) if origins else ()
            self._producers.append([self.executions[index] for index in indices])
            for index in indices:
                self._consumers[index].append(execution)
            self.executions.append(execution)
            self._consumers.append([])

    def complete(self) -> None:
        """No execution will be added that takes anything."""
        self._is_complete = True
        for execution in self.executions:
            if execution.is_kept:
                self._release_if_unneeded(execution)

    def clear(self) -> None:
        """Nothing is needed any more."""
        for execution in self.executions:
            execution.release()
            execution.cancel()
        # They know their dispatch: a circle would live until the garbage collector comes.
        self.executions, self._producers, self._consumers = [], [], []

    def has_placed_producers_of(self, consumer: Execution) -> bool:
        return all(producer.endpoint is not None for producer in self._producers_of(consumer))

    def unplaced_consumers_of(self, producer: Execution) -> list[Execution]:
        return [consumer for consumer in self._consumers_of(producer) if consumer.waits_for_a_replica]

    def add_inputs(self, consumer: Execution, start: pb.Start) -> None:
        """Puts what the consumer takes into what starts it."""
        for one in consumer.invocation.inputs:
            if isinstance(one, Blob):
                start.inputs.add(inline=one.data)
            else:
                self._add_pending(one, start)

    def end(self, execution: Execution) -> None:
        """Takes note that one has ended: its producers may be done, too, or its consumers must not wait for it."""
        if execution.invocation.error is not None:
            for consumer in self._consumers_of(execution):
                self.pass_on_failure(consumer)
        for producer in self._producers_of(execution):
            self._release_if_unneeded(producer)

    def pass_on_failure(self, consumer: Execution) -> None:
        """Without its inputs, it fails as their producer has failed."""
        for producer in self._producers_of(consumer):
            error = producer.invocation.error
            if error is not None and not consumer.is_over:
                consumer.fail_as(error)

    def remake(self, consumer: Execution, lost: Sequence[int]) -> list[Execution]:
        """Of the producers of the inputs that the consumer has found lost, those that have to run again."""
        again = []
        for pending in (consumer.inputs[index].pending for index in lost):
            producer = self.executions[pending.invocation]
            if producer.is_over and producer.attempt == pending.attempt:
                producer.forget_replica()
                again.append(producer)
        return again

    def waiting_for(self, producer: Execution, attempt: int) -> list[Execution]:
        """The consumers that have been told to wait for this attempt, and have not begun their output."""
        index = producer.invocation.index
        return [
            consumer
            for consumer in self._consumers_of(producer)
            if consumer.runs and not consumer.has_output and any(_is(one, index, attempt) for one in consumer.inputs)
        ]

    def _add_pending(self, one: Origin, start: pb.Start) -> None:
        producer = self.executions[one.invocation]
        pending = start.inputs.add().pending
        pending.invocation, pending.output = one.invocation, one.output
        pending.attempt, pending.endpoint = producer.attempt, producer.endpoint or ""

    def _producers_of(self, consumer: Execution) -> list[Execution]:
        return self._producers[consumer.invocation.index]

    def _consumers_of(self, producer: Execution) -> list[Execution]:
        return self._consumers[producer.invocation.index]

    def _release_if_unneeded(self, producer: Execution) -> None:
        if self._is_complete and producer.is_kept and all(one.is_over for one in self._consumers_of(producer)):
            producer.release()


def _is(given: pb.Input, invocation: int, attempt: int) -> bool:
    is_pending = given.HasField("pending")
    return is_pending and (given.pending.invocation, given.pending.attempt) == (invocation, attempt)
