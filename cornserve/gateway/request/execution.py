"""One invocation at the executors, over as many attempts as it takes (DESIGN §5, failures).

An attempt that has not begun costs nothing: the next replica gets it. If the executor dies under it, another one starts
anew where nothing has come out yet, and goes on from what has come out where the task says that this is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from cornserve.gateway.request.channel import Channel
from cornserve.task.output import layout_of
from cornserve.task.recording import Invocation
from cornserve.v1 import executor_pb2 as pb

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from cornserve.gateway.request.dispatch import Dispatch
    from cornserve.gateway.request.replica import Replica


class Execution:
    """Takes what executors send for one invocation."""

    __slots__ = ("_call", "_dispatch", "_replica", "_span", "attempt", "channels", "invocation", "refused_by")

    def __init__(self, invocation: Invocation, dispatch: Dispatch, attempt: int, *, streams: bool) -> None:
        self.invocation = invocation
        self.attempt = attempt
        names = layout_of(invocation.task.output_type).streams if streams else ()
        self.channels = {name: Channel() for name in names}
        self.refused_by: set[str] = set()
        """Endpoints that need not be tried again now."""
        self._dispatch = dispatch
        self._replica: Replica | None = None
        self._call = 0
        self._span: Span | None = None
        """Of the attempt, where requests are traced."""

    def start(self, replica: Replica, message: pb.Start) -> None:
        self._replica = replica
        trace = self._dispatch.meter.trace
        if trace is not None:
            self._span = trace.begin_attempt(self.invocation, replica.endpoint, message)
        self._call = replica.start(message, self)

    def cancel(self, code: str = "CANCELLED") -> None:
        if self._replica is not None and not self.invocation.ended:
            self._replica.cancel(self._call, code)
            self._end_span(code)

    def fail(self, code: str, message: str) -> None:
        self.cancel(code)
        self.invocation.fail(code, message)
        self._close()

    @property
    def waits_for_a_replica(self) -> bool:
        return self._replica is None and not self.invocation.ended

    @property
    def endpoint(self) -> str | None:
        return None if self._replica is None else self._replica.endpoint

    @property
    def has_output(self) -> bool:
        return self.invocation.has_values or any(channel.items for channel in self.channels.values())

    @property
    def delivered(self) -> list[pb.OutputChunk]:
        """What the streams have brought so far."""
        adapters = layout_of(self.invocation.task.output_type).streams
        return [
            pb.OutputChunk(output=name, payload=pb.Payload(json=adapters[name].dump_json(item)))
            for name, channel in self.channels.items()
            for item in channel.items
        ]

    def on_chunk(self, output: str, item: bytes) -> None:
        channel = self.channels.get(output)
        try:
            if channel is not None:
                self._dispatch.meter.chunk()
                channel.put(layout_of(self.invocation.task.output_type).streams[output].validate_json(item))
            else:
                self.invocation.put(output, item)
                self._dispatch.progress.set()
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
            self.invocation.fail(code, message)
            self._close()

    def _succeed(self, values: bytes) -> None:
        try:
            self.invocation.end(values)
            self._dispatch.meter.take_usage(self.invocation.output)
        except ValueError as error:
            self.invocation.fail("INTERNAL", f"the executor sent a wrong output: {error}")
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
        self.attempt += 1
        self._dispatch.meter.retry()
        self._replica = None
        self._dispatch.start(self)

    @property
    def _is_continued(self) -> bool:
        """Whether another executor goes on exactly from what has come out."""
        invocation = self.invocation
        if invocation.has_values or invocation.inputs:
            return False
        return invocation.task.continues(invocation.task.decode(invocation.request))

    def _close(self) -> None:
        for channel in self.channels.values():
            channel.close(self.invocation.error)
        self._dispatch.progress.set()
