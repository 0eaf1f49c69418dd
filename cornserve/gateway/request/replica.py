"""The connection to one executor replica: one line that carries all invocations there.

When the connection is lost, it matters to each invocation whether it may have begun: "UNAVAILABLE" says that it has
not, so that it harms nobody to send it elsewhere; "ABORTED" says that an executor died under it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence
from contextvars import Context
from typing import Protocol

from cornserve.gateway.observe.replica_metrics import ReplicaTally
from cornserve.observe.redaction import redacted_traceback
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import CALLER

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0


class Listener(Protocol):
    """Hears of one invocation, on the event loop; none of the calls may block."""

    def on_chunk(self, output: str, item: bytes) -> None: ...

    def on_end(self, code: str, message: str, values: bytes) -> None:
        """The last call. `code` is "OK" or what went wrong."""

    def on_input_lost(self, inputs: Sequence[int], message: str) -> None:
        """The last call, instead: the tensors that these inputs are to bring are gone."""


_starts = itertools.count()


class Replica:
    """Connects as soon as it is made, and once only: when the connection is lost, another one is made for the endpoint.

    Args:
        endpoint: `HOST:PORT`.
        is_suspect: an earlier connection to it was lost.
    """

    def __init__(self, endpoint: str, tally: ReplicaTally, *, is_suspect: bool = False) -> None:
        self.endpoint = endpoint
        self._tally = tally
        self.is_suspect = is_suspect
        """Until it is connected."""
        self._line = MessageConnection(CALLER, self._read, self._on_write)
        self._commands_since = 0.0
        self._running: dict[int, tuple[Listener, float]] = {}
        """By call, who listens, and when it was started."""
        self._kept: set[int] = set()
        self._calls = itertools.count(1)
        self.lost_at: float | None = None
        """When the connection was lost, by the event loop's clock."""
        self.last_start = -1
        """Orders the replicas by their last start of an invocation."""
        # It outlives the request in which it may be made, whose name is not to stand in its logs.
        self._connection = asyncio.create_task(self._connect(), name=f"replica {endpoint}", context=Context())

    @property
    def in_flight(self) -> int:
        return len(self._running)

    @property
    def is_needed(self) -> bool:
        """Whether something runs there, or was made there that is still wanted."""
        return bool(self._running or self._kept)

    def start(self, command: pb.Command, listener: Listener) -> int:
        """Starts an invocation; returns the number by which it can be cancelled, and which the command gets."""
        call = command.call = next(self._calls)
        self.last_start = next(_starts)
        self._running[call] = listener, time.perf_counter()
        self._tally.begin()
        self._send(command)
        return call

    def cancel(self, call: int, code: str = "CANCELLED") -> None:
        """Stops an invocation, which counts as ended by `code`. Its listener hears nothing more."""
        if self._forget(call, code) is not None:
            self._send(pb.Command(call=call, cancel=pb.Cancel()))

    def keep(self, call: int) -> None:
        """The tensors of an invocation that has ended are still needed."""
        self._kept.add(call)

    def release(self, call: int) -> None:
        """They are needed no more."""
        self._kept.discard(call)
        if self.lost_at is None:
            self._send(pb.Command(call=call, release=pb.Release()))

    async def close(self) -> None:
        self._connection.cancel()
        await asyncio.gather(self._connection, return_exceptions=True)

    def _forget(self, call: int, code: str) -> Listener | None:
        listener, started = self._running.pop(call, (None, 0.0))
        if listener is not None:
            self._tally.end(code, time.perf_counter() - started)
        return listener

    def _send(self, command: pb.Command) -> None:
        if not self._line.unsent:
            self._commands_since = time.perf_counter()
        self._line.send(command)

    def _on_write(self) -> None:
        self._tally.dispatch_seconds.observe(time.perf_counter() - self._commands_since)

    async def _connect(self) -> None:
        reason = "the connection was closed"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._line.connect(self.endpoint)
            self.is_suspect = False
            reason = await self._line.wait_closed()
        except (TimeoutError, OSError):
            reason = "nobody listens there"
        finally:
            self._line.abort(reason)
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        self.lost_at = asyncio.get_running_loop().time()
        unsent = {command.call for command in self._line.unsent}
        lost = list(self._running)
        if lost and not self.is_suspect:
            log.warning("lost the executor at %s with %d invocations: %s", self.endpoint, len(lost), reason)
        for call in lost:
            code = "UNAVAILABLE" if call in unsent else "ABORTED"
            listener = self._forget(call, code)
            if listener is not None:  # one that has heard of it before may have cancelled this one
                self._end(listener, code, f"the executor at {self.endpoint} was lost: {reason}")

    def _read(self, event: pb.Event | None) -> None:
        if event is None:
            self._line.abort("the executor has ended")
            return
        running = self._running.get(event.call)
        if running is None:
            return
        listener, _ = running
        try:
            if event.HasField("end"):
                self._take_end(event.call, event.end, listener)
            else:
                chunk = event.chunk
                listener.on_chunk(chunk.output, chunk.item)
        except Exception as error:  # the other invocations go on
            log.error("cannot take what the executor at %s sent:\n%s", self.endpoint, redacted_traceback(error))
            self.cancel(event.call, "INTERNAL")
            self._end(listener, "INTERNAL", f"the gateway cannot take the executor's answer: {error!r}")

    def _take_end(self, call: int, end: pb.End, listener: Listener) -> None:
        code = _CODES.get(end.code, "INTERNAL")
        self._forget(call, code)
        if code == "INPUT_LOST":
            listener.on_input_lost(end.lost_inputs, end.message)
        else:
            listener.on_end(code, end.message, end.values)

    def _end(self, listener: Listener, code: str, message: str) -> None:
        try:
            listener.on_end(code, message, b"")
        except Exception as error:
            log.error("cannot end an invocation at %s:\n%s", self.endpoint, redacted_traceback(error))


_CODES = {code: name.removeprefix("CODE_") for name, code in pb.Code.items()}
"""An executor of a newer version may send one that is not known here."""
