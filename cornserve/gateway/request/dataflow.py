"""The dataflow between the invocations of one request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cornserve.gateway.request.invocation_execution import InvocationExecution
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.task.errors import TensorStreamError
from cornserve.task.references import Origin


class Dataflow:
    """The executions of a request's invocations, with an edge for each output that another one consumes."""

    def __init__(self) -> None:
        self.executions: list[InvocationExecution] = []
        """The executions, in the order of the invocations' indices."""
        self._producers: list[Sequence[InvocationExecution]] = []
        self._consumers: list[list[InvocationExecution]] = []

    def add(self, execution: InvocationExecution) -> None:
        """Adds the execution of the invocation that follows those added before."""
        origins = execution.invocation.origins
        indices = sorted({origin.invocation for origin in origins}) if origins else ()
        for index in indices:
            self._consumers[index].append(execution)
        self._producers.append([self.executions[index] for index in indices])
        self._consumers.append([])
        self.executions.append(execution)

    def producers(self, execution: InvocationExecution) -> Sequence[InvocationExecution]:
        """Returns the executions whose outputs an execution consumes."""
        return self._producers[execution.invocation.index]

    def consumers(self, execution: InvocationExecution) -> Sequence[InvocationExecution]:
        """Returns the executions that consume the outputs of an execution."""
        return self._consumers[execution.invocation.index]

    def clear(self) -> None:
        self.executions, self._producers, self._consumers = [], [], []

    def consumers_waiting_for(self, producer: InvocationExecution, attempt: int) -> Iterator[InvocationExecution]:
        """Yields the running consumers without output that wait for tensors of an attempt."""
        awaited = producer.invocation.index, attempt
        for consumer in self.consumers(producer):
            if consumer.is_running and not consumer.has_output:
                pending = (given.pending for given in consumer.inputs if given.HasField("pending"))
                if any((tensor.invocation, tensor.attempt) == awaited for tensor in pending):
                    yield consumer

    def check_streams(self, invocation: RequestInvocation) -> None:
        """Raises `TensorStreamError` if the producer of a stream of tensors has been added without its consumer.

        The producer would wait for the consumer, and `invoke` for the producer.
        """
        for origin in self._consumed_streams(invocation):
            rule = "call the consumer of a TensorStream before `invoke` waits for a value"
            raise TensorStreamError(invocation.task_name, *origin, rule)

    def consumed_streams(self, consumer: InvocationExecution, producer: InvocationExecution) -> list[str]:
        """Returns the streams of tensors of a producer that a consumer reads."""
        origins = self._consumed_streams(consumer.invocation)
        return [origin.output for origin in origins if origin.invocation == producer.invocation.index]

    def requested_streams(self, producer: InvocationExecution) -> list[str]:
        """Returns the streams of tensors that unfinished consumers read."""
        consumers = (each for each in self.consumers(producer) if not each.is_finished)
        return sorted({output for each in consumers for output in self.consumed_streams(each, producer)})

    def is_stream_read(self, producer: InvocationExecution, repeated: Collection[InvocationExecution] = ()) -> bool:
        """Whether results of a producer of streams are part of the output of a consumer, which may have been read.

        Args:
            repeated: consumers that will run again.
        """
        return bool(producer.invocation.tensor_stream_names) and any(
            consumer.has_visible_output
            or (consumer.is_finished and consumer.invocation.error is None and consumer not in repeated)
            for consumer in self.consumers(producer)
        )

    def _consumed_streams(self, invocation: RequestInvocation) -> list[Origin]:
        if not invocation.origins:
            return []
        count = len(self.executions)
        return [
            origin
            for origin in invocation.origins
            if origin.invocation < count
            and origin.output in self.executions[origin.invocation].invocation.tensor_stream_names
        ]
