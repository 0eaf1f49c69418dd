"""The execution of one invocation, over one or more attempts, of which at most one runs at a time.

It collects the outputs that executors send and reports how each attempt ends. It does not decide what happens next.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import ValidationError

from cornserve.exception_text import exception_message
from cornserve.gateway.observe.request_spans import AttemptSpan
from cornserve.gateway.observe.request_stats import RequestStats
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.gateway.task_runs.stream_buffer import StreamBuffer
from cornserve.task.errors import InvocationError
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.invocations import STATE, StartCommand

if TYPE_CHECKING:  # They load OpenTelemetry.
    from opentelemetry.trace import Span

    from cornserve.gateway.observe.request_trace import RequestTrace


MAX_OUTPUT_BYTES: Final = 256 << 20
"""The limit for the chunks of one attempt, as long as the gateway keeps them."""

_CHUNK_BYTES: Final = 64
"""The memory of a chunk in addition to its content."""


class ExecutionState(Enum):
    WAITING = auto()
    """The execution is not assigned to a replica yet."""
    RUNNING = auto()
    """A replica runs the execution."""
    RETAINED = auto()
    """The execution has completed, and the executor retains its tensors for consumers."""
    FINISHED = auto()
    """The execution has completed, failed or been cancelled, and no executor retains its tensors."""


class HandedOverState:
    """A tensor that the replica of an attempt keeps, with which another replica continues sooner.

    Args:
        call: the attempt's call on the replica.
    """

    def __init__(self, replica: ReplicaConnection, call: int, attempt: int) -> None:
        self._replica = replica
        self._call = call
        self._attempt = attempt
        replica.retain_tensors(call)

    def add_to(self, command: StartCommand) -> None:
        """Adds the tensor as the last input of the next attempt."""
        start = command.message.start
        start.has_state = True
        pending = command.add_pending()
        pending.invocation, pending.output, pending.attempt = start.invocation, STATE, self._attempt
        pending.endpoint = self._replica.endpoint

    def release(self) -> None:
        self._replica.release_tensors(self._call)


class OutcomeHandler(Protocol):
    """Decides what follows the outcome of an attempt."""

    def on_value(self) -> None:
        """A value of the output has arrived before the end of the invocation."""

    def on_completed(self, execution: InvocationExecution) -> None:
        """The invocation has ended, with an error if its output is invalid."""

    def on_failed(self, execution: InvocationExecution, code: str, message: str) -> None: ...

    def on_inputs_taken(self, execution: InvocationExecution) -> None:
        """The attempt does not read some of its inputs any more."""

    def on_replica_leaving(self, execution: InvocationExecution) -> None:
        """No route contains the replica of the attempt any more."""

    def on_inputs_lost(self, execution: InvocationExecution, inputs: Sequence[int], message: str) -> None:
        """The attempt has ended because the tensors of these inputs, or the rest of their streams, are gone."""


class InvocationExecution:
    """Args:
    group: the executor group that the invocation is sent to.
    """

    __slots__ = (
        "_call",
        "_collected",
        "_handler",
        "_output_bytes",
        "_queued",
        "_record",
        "_span",
        "_state",
        "_stats",
        "_taken",
        "_trace",
        "attempt",
        "due_us",
        "group",
        "handed_over_state",
        "input_losses",
        "inputs",
        "invocation",
        "is_leaving",
        "refused_by",
        "replica",
        "streams",
    )

    def __init__(
        self,
        invocation: RequestInvocation,
        group: str,
        handler: OutcomeHandler,
        stats: RequestStats,
        trace: RequestTrace | None,
        *,
        attempt: int,
        streams: bool,
    ) -> None:
        self.invocation = invocation
        self.attempt = attempt
        self.replica: ReplicaConnection | None = None
        """The replica of the current attempt. It stays set after the attempt ends."""
        self.inputs: Sequence[pb.Input] = ()
        """The inputs of the last attempt."""
        self.streams = {name: StreamBuffer() for name in invocation.stream_names} if streams else {}
        self._collected: list[pb.OutputChunk] = []
        """Items of streams that the client does not read, after which another executor continues."""
        self.refused_by: set[str] = set()
        """Endpoints to avoid in the next attempt."""
        self.input_losses = 0
        self.is_leaving = False
        """Whether the executor of the current attempt may hand it over."""
        self.handed_over_state: HandedOverState | None = None
        """The state of an earlier attempt, until an attempt has taken it."""
        self.group = group
        self.due_us = 0
        """When the first output is due, in microseconds since 1970. 0: the app has no target for it."""
        self._handler = handler
        self._stats = stats
        self._trace = trace
        self._span: Span | None = None
        self._record: AttemptSpan | None = None
        self._queued = stats.seconds
        self._call = 0
        self._taken: set[int] = set()
        """Inputs that the current attempt does not read any more."""
        self._output_bytes = 0
        self._state = ExecutionState.WAITING

    @property
    def is_waiting(self) -> bool:
        return self._state is ExecutionState.WAITING

    @property
    def is_running(self) -> bool:
        return self._state is ExecutionState.RUNNING

    @property
    def is_finished(self) -> bool:
        """Whether the execution neither runs nor must be started."""
        return self._state in (ExecutionState.RETAINED, ExecutionState.FINISHED)

    @property
    def has_output(self) -> bool:
        return self.invocation.has_early_values or any(stream.items for stream in self.streams.values())

    @property
    def has_visible_output(self) -> bool:
        """Whether values or items of streams have arrived, which may have been read."""
        invocation = self.invocation
        return self.has_output or (invocation.ended and bool(invocation.has_values or invocation.stream_names))

    def has_taken(self, producer: InvocationExecution) -> bool:
        """Whether the current attempt has read all tensors of a producer, and does not read them again."""
        if not (self._taken and self.is_running):
            return False
        index = producer.invocation.index
        inputs = {n for n, given in enumerate(self.inputs) if given.HasField("pending")}
        return self._taken.issuperset(n for n in inputs if self.inputs[n].pending.invocation == index)

    def delivered(self) -> list[pb.OutputChunk]:
        """Returns all stream items received so far."""
        return self._collected + [
            pb.OutputChunk(output=name, item=self.invocation.dump_item(name, item))
            for name, stream in self.streams.items()
            for item in stream.items
        ]

    def start(self, replica: ReplicaConnection, command: StartCommand) -> None:
        self.replica = replica
        self.inputs = command.inputs
        self._state = ExecutionState.RUNNING
        self._record = self._stats.begin_attempt(
            self.invocation.task_name,
            replica.group,
            replica.id,
            index=self.invocation.index,
            attempt=self.attempt,
            after=sorted({origin.invocation for origin in self.invocation.origins}),
            queued=self._queued,
        )
        if self._trace is not None:
            self._span = self._trace.begin_attempt(self.invocation, replica.endpoint, command.message.start)
        self._call = replica.start_invocation(command.message, self, command.encode_inputs())

    def prepare_retry(self, *, is_hand_over: bool = False) -> None:
        """Cancels the current attempt, releases its tensors, and waits for a replica for the next attempt.

        Args:
            is_hand_over: whether another replica has handed the invocation over, which does not count as a retry.
        """
        self.cancel()
        self.release()
        self.attempt += 1
        self.replica = None
        self._state = ExecutionState.WAITING
        self._taken.clear()
        self._output_bytes = 0
        self.is_leaving = False
        if not is_hand_over:
            self._stats.record_retry()

    def cancel(self, code: str = "CANCELLED") -> None:
        if self.replica is not None and self.is_running:
            self._state = ExecutionState.FINISHED
            self.replica.cancel_invocation(self._call, code)
            self._end_span(code)

    def fail(self, error: InvocationError) -> None:
        self.cancel(error.code)
        self.release_handed_over_state()
        self._state = ExecutionState.FINISHED
        self.invocation.fail_with(error)
        self._close_streams()

    def discard_streams(self, outputs: Sequence[str]) -> None:
        """Drops streams of tensors of the running attempt, because their consumer has ended."""
        if self.replica is not None and self.is_running:
            self.replica.discard_streams(self._call, outputs)

    def bind_to(self, producer: InvocationExecution, replicas: int) -> None:
        """Names this attempt's replica, one among `replicas`, to the executor of a producer, if that limits the memory
        of the tensors for it."""
        has_tensors = producer.is_running or producer._state is ExecutionState.RETAINED
        if self.replica is None or producer.replica is None or not producer.replica.limits_consumers or not has_tensors:
            return
        self.replica.expect_taking(self._call)
        if replicas > 1:
            producer.replica.bind_consumer(producer._call, self.replica.endpoint, replicas)

    def hand_over(self) -> None:
        """Lets the executor of the running attempt end it where another replica can continue."""
        if self.replica is not None and self.is_running:
            self.is_leaving = True
            self.replica.hand_over(self._call)

    def end_unread(self) -> None:
        """Ends an invocation whose outputs are all streams of tensors without unfinished consumers."""
        self.cancel()
        self._state = ExecutionState.FINISHED
        if not self.invocation.ended:
            self.invocation.finish(b"")

    def release(self) -> None:
        """Releases the tensors that the executor retains."""
        if self.replica is not None and self._state is ExecutionState.RETAINED:
            self._state = ExecutionState.FINISHED
            self.replica.release_tensors(self._call)

    def release_handed_over_state(self) -> None:
        """Releases the state of an earlier attempt."""
        if self.handed_over_state is not None:
            self.handed_over_state.release()
            self.handed_over_state = None

    def on_chunk(self, output: str, item: bytes) -> None:
        invocation = self.invocation
        if invocation.ended:  # The invocation runs again only to reproduce its tensors.
            return
        self._output_bytes += len(item) + _CHUNK_BYTES
        if self._output_bytes > MAX_OUTPUT_BYTES:
            self._fail_attempt(f"the executor sent more than {MAX_OUTPUT_BYTES} bytes of output")
            return
        if self._record is not None:
            self._record.record_item()
        stream = self.streams.get(output)
        try:
            if stream is not None:
                self._stats.record_chunk()
                stream.append(invocation.load_item(output, item))
            elif self.is_leaving and output in invocation.stream_names:
                self._collected.append(pb.OutputChunk(output=output, item=item))
            elif invocation.has_value(output):
                self._fail_attempt(f"the executor sent the value {output!r} twice")
            else:
                invocation.set_value(output, item)
                self._handler.on_value()
        except (KeyError, ValidationError) as error:
            self._fail_attempt(f"the executor sent an invalid {output[:100]!r}: {exception_message(error)}")

    def on_compute_time(self, seconds: float) -> None:
        self._stats.record_compute_time(self.group, seconds)

    def on_end(self, code: str, message: str, values: bytes) -> None:
        self._end_span(code)
        self._state = ExecutionState.FINISHED
        if code != "OK":
            self._handler.on_failed(self, code, message)
            return
        self.release_handed_over_state()
        if self.replica is not None and self.invocation.has_tensors:
            self._state = ExecutionState.RETAINED
            self.replica.retain_tensors(self._call)
        if not self.invocation.ended:
            try:
                self.invocation.finish(values)
                self._stats.record_usage(self.invocation.reported_usage)
            except ValueError as error:
                self.invocation.fail_with(
                    InvocationError(
                        self.invocation.task_name,
                        self.invocation.index,
                        "INTERNAL",
                        f"the executor sent an invalid output: {exception_message(error)}",
                    )
                )
        self._close_streams()
        self._handler.on_completed(self)

    def on_handed_over(self, message: str, *, has_state: bool) -> None:
        if has_state and self.replica is not None:
            self.release_handed_over_state()
            self.handed_over_state = HandedOverState(self.replica, self._call, self.attempt)
        self.on_end("HANDED_OVER", message, b"")

    def on_inputs_taken(self, inputs: Sequence[int]) -> None:
        self._taken.update(inputs)
        if self._record is not None:
            self._record.record_inputs()
        if len(self.inputs) - 1 in inputs:
            self.release_handed_over_state()
        if self.replica is not None and all(
            n in self._taken for n, given in enumerate(self.inputs) if given.HasField("pending")
        ):
            self.replica.end_taking(self._call)
        self._handler.on_inputs_taken(self)

    def on_replica_leaving(self) -> None:
        self._handler.on_replica_leaving(self)

    def on_inputs_lost(self, inputs: Sequence[int], message: str) -> None:
        self._end_span("INPUT_LOST")
        self._state = ExecutionState.FINISHED
        count = len(self.inputs)
        if all(index < count and self.inputs[index].HasField("pending") for index in inputs):
            self._handler.on_inputs_lost(self, inputs, message)
        else:
            self._handler.on_failed(
                self, "INTERNAL", "the executor reported that inputs are lost which are not tensors"
            )

    def _fail_attempt(self, message: str) -> None:
        """Cancels the attempt, because its executor broke the contract."""
        self.cancel("INTERNAL")
        self._handler.on_failed(self, "INTERNAL", message)

    def _close_streams(self) -> None:
        for stream in self.streams.values():
            stream.close(self.invocation.error)

    def _end_span(self, code: str) -> None:
        if self._record is not None:
            self._record.finish(code)
        if self._trace is not None and self._span is not None:
            self._trace.end_attempt(self._span, code)
            self._span = None
