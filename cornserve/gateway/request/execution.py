"""One invocation at the executors, over as many attempts as it takes (DESIGN §5, failures).

An attempt that has not begun costs nothing: the next replica gets it. If the executor dies under it, another one starts
anew where nothing has come out yet, and goes on from what has come out where the task says that this is exact.

An invocation that has ended may have to run once more, for its tensors: they are gone when its executor dies before
their consumers have them. Its values stay what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cornserve.gateway.request.channel import Channel
from cornserve.task.errors import InvocationError
from cornserve.task.recording import Invocation
from cornserve.v1 import executor_pb2 as pb

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from cornserve.gateway.request.dispatch import Dispatch
    from cornserve.gateway.request.replica import Replica


MAX_INPUT_LOSSES = 3
"""How often an invocation may find that its inputs are gone."""


class State(Enum):
    WAITING = auto()
    """For a replica, to run there for the first time or once more."""
    RUNNING = auto()
    KEPT = auto()
    OVER = auto()


class Execution:
    """Takes what executors send for one invocation."""

    __slots__ = (
        "_call",
        "_dispatch",
        "_input_losses",
        "_replica",
        "_span",
        "_state",
        "attempt",
        "channels",
        "inputs",
        "invocation",
        "refused_by",
    )

    def __init__(self, invocation: Invocation, dispatch: Dispatch, attempt: int, *, streams: bool) -> None:
        self.invocation = invocation
        self.attempt = attempt
        self.channels = {name: Channel() for name in invocation.task.layout.streams} if streams else {}
        self.refused_by: set[str] = set()
        """Endpoints that need not be tried again now."""
        self._dispatch = dispatch
        self._replica: Replica | None = None
        self._call = 0
        self.inputs: Sequence[pb.Input] = ()
        """What the last attempt was given."""
        self._state = State.WAITING
        self._input_losses = 0
        self._span: Span | None = None
        """Of the attempt, where requests are traced."""

    def start(self, replica: Replica, command: pb.Command) -> None:
        self._replica = replica
        self.inputs = command.start.inputs
        self._state = State.RUNNING
        trace = self._dispatch.meter.trace
        if trace is not None:
            self._span = trace.begin_attempt(self.invocation, replica.endpoint, command.start)
        self._call = replica.start(command, self)

    def cancel(self, code: str = "CANCELLED") -> None:
        if self._replica is not None and self.runs:
            self._state = State.OVER
            self._replica.cancel(self._call, code)
            self._end_span(code)

    def fail(self, code: str, message: str) -> None:
        self.cancel(code)
        self._fail(code, message)

    def fail_as(self, error: InvocationError) -> None:
        """As another invocation has failed, so that clients hear of the same error wherever a task splits its work."""
        self.cancel(error.code)
        self._state = State.OVER
        self.invocation.fail_with(error)
        self._close()

    def release(self) -> None:
        """Its tensors are needed no more."""
        if self._replica is not None and self.is_kept:
            self._state = State.OVER
            self._replica.release(self._call)

    def start_anew(self) -> None:
        """An attempt that cannot come to anything is given up: it was told to wait for what will not come."""
        self.cancel()
        self._try_again()

    def forget_replica(self) -> None:
        """It has to be started again, as a new attempt."""
        self.release()
        self.attempt += 1
        self._state = State.WAITING
        self._replica = None
        self._dispatch.meter.retry()

    @property
    def is_over(self) -> bool:
        """Whether nothing runs or has to be started for it."""
        return self._state in (State.KEPT, State.OVER)

    @property
    def is_kept(self) -> bool:
        """Whether it has ended, and its executor keeps its tensors."""
        return self._state is State.KEPT

    @property
    def waits_for_a_replica(self) -> bool:
        return self._state is State.WAITING

    @property
    def endpoint(self) -> str | None:
        return None if self._replica is None else self._replica.endpoint

    @property
    def runs(self) -> bool:
        """At a replica, now."""
        return self._state is State.RUNNING

    @property
    def has_output(self) -> bool:
        return self.invocation.has_early_values or any(channel.items for channel in self.channels.values())

    @property
    def delivered(self) -> list[pb.OutputChunk]:
        """What the streams have brought so far."""
        adapters = self.invocation.task.layout.streams
        return [
            pb.OutputChunk(output=name, item=adapters[name].dump_json(item))
            for name, channel in self.channels.items()
            for item in channel.items
        ]

    def on_chunk(self, output: str, item: bytes) -> None:
        if self.invocation.ended:  # It runs again for its tensors only.
            return
        channel = self.channels.get(output)
        try:
            if channel is not None:
                self._dispatch.meter.chunk()
                channel.put(self.invocation.task.layout.streams[output].validator.validate_json(item))
            else:
                self.invocation.set_value(output, item)
                self._dispatch.on_progress()
        except (KeyError, ValidationError) as error:
            self.fail("INTERNAL", f"the executor sent a wrong {output!r}: {error}")

    def _end_span(self, code: str) -> None:
        trace = self._dispatch.meter.trace
        if trace is not None and self._span is not None:
            trace.end_attempt(self._span, code)
            self._span = None

    def on_end(self, code: str, message: str, values: bytes) -> None:
        self._end_span(code)
        if code == "OK":
            self._succeed(values)
            return
        if self.endpoint is not None:
            self.refused_by.add(self.endpoint)
        if self._may_try_again(code):
            self._try_again()
        else:
            self._fail(code, message)

    def on_input_lost(self, inputs: Sequence[int], message: str) -> None:
        """It has not begun, because tensors of other invocations are gone."""
        self._end_span("INPUT_LOST")
        self._input_losses += 1
        if self._input_losses > MAX_INPUT_LOSSES:
            self._fail("ABORTED", f"its inputs were lost {self._input_losses} times: {message}")
            return
        self.forget_replica()
        self._dispatch.restart(self, inputs)

    def _succeed(self, values: bytes) -> None:
        self._state = State.OVER
        if self._replica is not None and self.invocation.task.layout.tensors:
            self._state = State.KEPT
            self._replica.keep(self._call)
        if not self.invocation.ended:
            try:
                self.invocation.finish(values)
                self._dispatch.meter.take_usage(self.invocation.output)
            except ValueError as error:
                self.invocation.fail("INTERNAL", f"the executor sent a wrong output: {error}")
        self._close()

    def _fail(self, code: str, message: str) -> None:
        self._state = State.OVER
        self.invocation.fail(code, message)
        self._close()

    def _may_try_again(self, code: str) -> bool:
        match code:
            case "UNAVAILABLE":
                return True
            case "RESOURCE_EXHAUSTED":
                return self._dispatch.has_other(self)
            case "ABORTED":
                return self._dispatch.survives(self._replica) and (not self.has_output or self._is_continued)
        return False

    def _try_again(self) -> None:
        abandoned = self.attempt
        self.forget_replica()
        self._dispatch.start(self)
        self._dispatch.redirect_consumers(self, abandoned)

    @property
    def _is_continued(self) -> bool:
        """Whether another executor goes on exactly from what has come out."""
        invocation = self.invocation
        if invocation.ended:  # Values are there, and tensors are made anew.
            return True
        if invocation.has_early_values:
            return False
        return invocation.task.continues(invocation.task.decode(invocation.request, invocation.inputs))

    def _close(self) -> None:
        for channel in self.channels.values():
            channel.close(self.invocation.error)
        self._dispatch.on_end(self)
