"""The connection to one executor replica. It carries all invocations of this gateway there.

When the connection is lost, each running invocation ends with "UNAVAILABLE" if it cannot have begun, so that it is safe
to send it to another replica, or with "ABORTED" if the executor may have died during the invocation.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Final, Protocol

from cornserve.gateway.observe.replica_metrics import ReplicaStats
from cornserve.observe import logs
from cornserve.observe.redaction import redacted_traceback
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.codec import MessageSizeError
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.invocations import CALLER
from cornserve_policies.board import LoadLimits, LoadReport, ReplicaLoad

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0

MAX_MESSAGE_CHARACTERS: Final = 10_000
"""The rest of an executor's error message is cut off, because logs and responses contain it."""

MAX_DIGEST_CHARACTERS: Final = 128


class InvocationListener(Protocol):
    """Receives the events of one invocation, on the event loop. The methods must not block."""

    def on_chunk(self, output: str, item: bytes) -> None: ...

    def on_compute_time(self, seconds: float) -> None:
        """The time of the executor that the invocation took. It precedes the last event."""

    def on_end(self, code: str, message: str, values: bytes) -> None:
        """The last event. `code` is "OK" or an error code."""

    def on_handed_over(self, message: str, *, has_state: bool) -> None:
        """The last event, instead of `on_end`: another replica continues. `has_state`: the executor keeps a tensor for
        it."""

    def on_inputs_taken(self, inputs: Sequence[int]) -> None:
        """The executor does not read the tensors of these inputs any more."""

    def on_replica_leaving(self) -> None:
        """No route contains the replica any more. The invocation continues to run there."""

    def on_inputs_lost(self, inputs: Sequence[int], message: str) -> None:
        """The last event, instead of `on_end`: the tensors of these inputs are gone."""


class ReplicaConnection:
    """Connects on creation. A lost connection does not reconnect: create another connection.

    Args:
        endpoint: `HOST:PORT`.
        credentials: for the connection.
        unreachable_since: when an earlier connection to the endpoint was lost, by the event loop's clock.
        on_load: called with the endpoint when the replica's load may be lower than before.
    """

    def __init__(
        self,
        endpoint: str,
        credentials: ConnectionCredentials,
        stats: ReplicaStats,
        *,
        unreachable_since: float | None = None,
        on_load: Callable[[str], None] = lambda endpoint: None,
    ) -> None:
        self.endpoint = endpoint
        self._on_load = on_load
        self._credentials = credentials
        self._stats = stats
        self.unreachable_since = unreachable_since
        """Time since which no connection to the endpoint has been established, by the event loop's clock."""
        self._connection = MessageConnection(CALLER, self._on_event, self._on_write)
        self._oldest_unsent_at = 0.0
        """Time when the oldest unsent command was queued."""
        self._running: dict[int, tuple[InvocationListener, float]] = {}
        """The listener and the start time of each running invocation, by call number."""
        self._retained: set[int] = set()
        """Calls whose tensors the executor retains."""
        self._calls = itertools.count(1)
        self.lost_at: float | None = None
        """Time when the connection was lost, by the event loop's clock."""
        self.load = ReplicaLoad(endpoint)
        self.max_model_len: int | None = None
        """The context length of the executor, in tokens, once it has sent it."""
        self.model_digest: str | None = None
        """The digest of the model that the executor has loaded, once it has sent it. Empty: unknown."""
        self.limits_consumers = False
        """Whether the executor limits the memory of the tensors for one of several consumers."""
        # The task outlives the request that creates it, so it must not inherit the request's logging context.
        self._connecting = asyncio.create_task(self._connect(), name=f"replica {endpoint}", context=Context())

    @property
    def group(self) -> str:
        """The key of the replica's executor group."""
        return self._stats.group

    @property
    def id(self) -> str:
        """The replica's id, or its endpoint if the id is unknown."""
        return self._stats.replica

    @property
    def in_flight(self) -> int:
        return len(self._running)

    @property
    def is_suspect(self) -> bool:
        """Whether this connection was lost, or an earlier one was and this one is not established yet."""
        return self.unreachable_since is not None

    @property
    def is_in_use(self) -> bool:
        """Whether the executor runs invocations or retains tensors for this gateway."""
        return bool(self._running or self._retained)

    def start_invocation(self, command: pb.Command, listener: InvocationListener, inputs: Sequence[bytes] = ()) -> int:
        """Sends a start command; returns its call number. If it is too large, the invocation ends immediately after.

        Args:
            inputs: the encoded inputs, which the command does not contain.
        """
        call = command.call = next(self._calls)
        self.load.start(call, command.start.tokens)
        self._running[call] = listener, time.perf_counter()
        self._stats.record_start()
        try:
            self._send(command, inputs)
        except MessageSizeError as error:
            end = pb.End(code=pb.CODE_INVALID_ARGUMENT, message=f"the input is too large: {error}")
            asyncio.get_running_loop().call_soon(self._on_event, pb.Event(call=call, end=end))
        return call

    def cancel_invocation(self, call: int, code: str = "CANCELLED") -> None:
        """Stops an invocation and counts it as ended with `code`. Its listener receives no further events."""
        if self._remove(call, code) is not None:
            self._send(pb.Command(call=call, cancel=pb.Cancel()))

    def discard_streams(self, call: int, outputs: Sequence[str]) -> None:
        """Lets a running invocation drop the tensors of these streams, whose consumers have ended."""
        if self.lost_at is None:
            self._send(pb.Command(call=call, discard_streams=pb.DiscardStreams(outputs=outputs)))

    def hand_over(self, call: int) -> None:
        """Lets the executor end a running invocation with HANDED_OVER where another replica can continue it."""
        if self.lost_at is None:
            self._send(pb.Command(call=call, hand_over=pb.HandOver()))

    def expect_taking(self, call: int) -> None:
        """Counts the input of an invocation until `end_taking`. See `ReplicaLoad.expect_taking`."""
        self.load.expect_taking(call)

    def end_taking(self, call: int) -> None:
        """Counts the input of an invocation as taken."""
        self.load.end_taking(call)
        self._on_load(self.endpoint)

    def bind_consumer(self, call: int, endpoint: str, replicas: int) -> None:
        """Lets the executor count the tensors of a call as those for one replica among several."""
        if self.lost_at is None:
            self._send(pb.Command(call=call, bind_consumer=pb.BindConsumer(endpoint=endpoint, replicas=replicas)))

    def leave(self) -> None:
        """Informs all running invocations that no route contains the replica any more."""
        for listener, _ in [*self._running.values()]:
            self._notify(listener.on_replica_leaving)

    def retain_tensors(self, call: int) -> None:
        """Marks the tensors of a completed invocation as needed."""
        self._retained.add(call)

    def release_tensors(self, call: int) -> None:
        self._retained.discard(call)
        if self.lost_at is None:
            self._send(pb.Command(call=call, release=pb.Release()))

    async def close(self) -> None:
        self._connecting.cancel()
        await asyncio.gather(self._connecting, return_exceptions=True)

    def _remove(self, call: int, code: str) -> InvocationListener | None:
        listener, started = self._running.pop(call, (None, 0.0))
        if listener is not None:
            self.load.end(call)
            self._stats.record_end(code, time.perf_counter() - started)
            self._on_load(self.endpoint)
        return listener

    def _send(self, command: pb.Command, inputs: Sequence[bytes] = ()) -> None:
        if not self._connection.unsent:
            self._oldest_unsent_at = time.perf_counter()
        self._connection.send(command, inputs)

    def _on_write(self) -> None:
        self._stats.dispatch_seconds.observe(time.perf_counter() - self._oldest_unsent_at)

    async def _connect(self) -> None:
        reason = "the connection was closed"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._connection.connect(self.endpoint, self._credentials)
            self.unreachable_since = None
            reason = await self._connection.wait_closed()
        except OSError as error:  # a timeout has no message
            reason = f"cannot connect: {str(error) or f'no response within {CONNECT_SECONDS:g} s'}"
        finally:
            self._connection.abort(reason)
            self._on_lost(reason)
            await self._connection.wait_closed()

    def _on_lost(self, reason: str) -> None:
        was_reachable = self.unreachable_since is None
        self.lost_at = asyncio.get_running_loop().time()
        self.unreachable_since = self.unreachable_since or self.lost_at
        unsent = {pb.Command.FromString(command).call for command, *_ in self._connection.unsent}
        lost = list(self._running)
        if lost and was_reachable:
            log.warning("lost the executor at %s with %d invocations: %s", self.endpoint, len(lost), reason)
        for call in lost:
            code = "UNAVAILABLE" if call in unsent else "ABORTED"
            listener = self._remove(call, code)
            if listener is not None:  # The listener of another call may have cancelled this call.
                self._end(listener, code, f"the executor at {self.endpoint} was lost: {reason}")

    def _on_event(self, event: pb.Event | None) -> None:
        if event is None:
            self._connection.abort("the executor has exited")
            return
        kind = event.WhichOneof("kind")
        if kind is None:
            self._connection.abort("the executor sent an unknown event")
            return
        if kind == "description":
            self._describe(event.description)
            return
        if event.HasField("load"):
            self._report(event.load)
        running = self._running.get(event.call)
        if running is None:
            return
        listener, _ = running
        error = self._notify(lambda: self._handle(event, kind, listener))
        if error is not None:
            self.cancel_invocation(event.call, "INTERNAL")
            self._end(listener, "INTERNAL", f"the gateway cannot process the executor's response: {error!r}")

    def _handle(self, event: pb.Event, kind: str, listener: InvocationListener) -> None:
        if kind == "end":
            self._on_end(event.call, event.end, listener)
        elif kind == "taken":
            listener.on_inputs_taken(event.taken.inputs)
        else:
            self.load.receive_output(event.call)
            listener.on_chunk(event.chunk.output, event.chunk.item)

    def _describe(self, description: pb.Description) -> None:
        self.max_model_len = description.max_model_len or None
        self.limits_consumers = description.limits_consumers
        self.model_digest = description.model_digest[:MAX_DIGEST_CHARACTERS]
        self.load.capacity = LoadLimits(description.max_running, description.max_model_len)
        self._on_load(self.endpoint)

    def _report(self, load: pb.Load) -> None:
        report = LoadReport(
            at=asyncio.get_running_loop().time(),
            running=load.running,
            waiting=load.waiting,
            pending_tokens=load.pending_tokens,
            own_invocations=load.own_invocations,
            own_pending_tokens=load.own_pending_tokens,
        )
        self.load.report(report)
        self._on_load(self.endpoint)

    def _on_end(self, call: int, end: pb.End, listener: InvocationListener) -> None:
        code, message = _CODES.get(end.code, "INTERNAL"), end.message[:MAX_MESSAGE_CHARACTERS]
        self._remove(call, code)
        listener.on_compute_time(end.compute_seconds)
        if code == "INPUT_LOST":
            listener.on_inputs_lost(end.lost_inputs, message)
        elif code == "HANDED_OVER":
            listener.on_handed_over(message, has_state=end.has_state)
        else:
            listener.on_end(code, message, end.values)

    def _end(self, listener: InvocationListener, code: str, message: str) -> None:
        self._notify(lambda: listener.on_end(code, message, b""))

    def _notify(self, notify: Callable[[], None]) -> Exception | None:
        """Calls a listener. Logs and returns its error, which must not affect the other invocations."""
        try:
            notify()
        except Exception as error:
            extra = logs.traceback_field(redacted_traceback(error))
            log.error("cannot process an event of the executor at %s", self.endpoint, extra=extra)
            return error
        return None


_CODES = {code: name.removeprefix("CODE_") for name, code in pb.Code.items()}
"""Codes that this version does not know, sent by a newer executor, count as INTERNAL."""
