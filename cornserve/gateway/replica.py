"""The connection to one executor replica: one gRPC stream that carries all invocations there.

Commands that gather while a frame is written leave together in the next one: under load, gRPC's cost per message
is shared by many invocations.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from typing import Protocol

import grpc

from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc

log = logging.getLogger(__name__)

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Notices a peer that is gone without a word (its node died) within half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class Listener(Protocol):
    """Hears of one invocation, on the event loop; none of the calls may block."""

    def on_chunk(self, output: str, item: bytes) -> None: ...

    def on_end(self, code: str, message: str, values: bytes) -> None:
        """The last call. `code` is "OK" or what went wrong."""


class Replica:
    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._commands: list[pb.Command] = []
        self._filled = asyncio.Event()
        self._listeners: dict[int, Listener] = {}
        self._calls = itertools.count(1)
        self._connection = asyncio.create_task(self._connect(), name=f"replica {endpoint}")

    @property
    def in_flight(self) -> int:
        return len(self._listeners)

    @property
    def is_lost(self) -> bool:
        return self._connection.done()

    def start(self, start: pb.Start, listener: Listener) -> int:
        """Starts an invocation; returns the number by which it can be cancelled."""
        call = next(self._calls)
        self._listeners[call] = listener
        self._send(pb.Command(call=call, start=start))
        return call

    def cancel(self, call: int) -> None:
        """Stops an invocation. Its listener hears nothing more."""
        if self._listeners.pop(call, None) is not None:
            self._send(pb.Command(call=call, cancel=pb.Cancel()))

    async def close(self) -> None:
        self._connection.cancel()
        await asyncio.gather(self._connection, return_exceptions=True)

    def _send(self, command: pb.Command) -> None:
        self._commands.append(command)
        self._filled.set()

    async def _connect(self) -> None:
        reason = "the connection was closed"
        try:
            async with grpc.aio.insecure_channel(self.endpoint, options=_CHANNEL_OPTIONS) as channel:
                stream = executor_pb2_grpc.ExecutorStub(channel).Invoke()
                writer = asyncio.create_task(self._write(stream))
                try:
                    await self._read(stream)
                    reason = "the executor ended the connection"
                finally:
                    writer.cancel()
                    await asyncio.gather(writer, return_exceptions=True)
        except grpc.aio.AioRpcError as error:
            reason = error.details() or error.code().name
            log.warning("lost the executor at %s: %s", self.endpoint, reason)
        finally:
            lost, self._listeners = self._listeners, {}
            for listener in lost.values():
                self._end(listener, "UNAVAILABLE", f"the executor at {self.endpoint} was lost: {reason}")

    async def _write(self, stream: grpc.aio.StreamStreamCall[pb.InvokeRequest, pb.InvokeResponse]) -> None:
        # A stream that breaks is the reader's to report.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await self._filled.wait()
                self._filled.clear()
                commands, self._commands = self._commands, []
                await stream.write(pb.InvokeRequest(commands=commands))

    async def _read(self, stream: grpc.aio.StreamStreamCall[pb.InvokeRequest, pb.InvokeResponse]) -> None:
        async for frame in stream:
            for event in frame.events:
                listener = self._listeners.get(event.call)
                if listener is None:
                    continue
                try:
                    self._pass_on(event, listener)
                except Exception as error:  # the other invocations go on
                    log.exception("cannot take what the executor at %s sent", self.endpoint)
                    self.cancel(event.call)
                    self._end(listener, "INTERNAL", f"the gateway cannot take the executor's answer: {error!r}")

    def _pass_on(self, event: pb.Event, listener: Listener) -> None:
        if event.HasField("end"):
            del self._listeners[event.call]
            listener.on_end(_name_of(event.end.code), event.end.message, event.end.values)
        else:
            listener.on_chunk(event.chunk.output, event.chunk.payload.json)

    def _end(self, listener: Listener, code: str, message: str) -> None:
        try:
            listener.on_end(code, message, b"")
        except Exception:
            log.exception("cannot end an invocation at %s", self.endpoint)


def _name_of(code: pb.Code.ValueType) -> str:
    """Without its prefix; an executor of a newer version may send a code that is not known here."""
    return pb.Code.Name(code).removeprefix("CODE_") if code in pb.Code.values() else "INTERNAL"


class Replicas:
    """The replicas that this gateway is connected to, by endpoint."""

    def __init__(self) -> None:
        self._replicas: dict[str, Replica] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def choose(self, endpoints: list[str]) -> Replica:
        """The one with the fewest of this gateway's invocations in flight."""
        return min((self._get(endpoint) for endpoint in endpoints), key=lambda replica: replica.in_flight)

    def _get(self, endpoint: str) -> Replica:
        replica = self._replicas.get(endpoint)
        if replica is None or replica.is_lost:
            replica = self._replicas[endpoint] = Replica(endpoint)
        return replica

    def retain(self, endpoints: set[str]) -> None:
        """Closes idle connections to replicas that no route names any more."""
        for endpoint in [*self._replicas]:
            if endpoint not in endpoints and not self._replicas[endpoint].in_flight:
                closing = asyncio.create_task(self._replicas.pop(endpoint).close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        await asyncio.gather(*(replica.close() for replica in self._replicas.values()), *self._closing)
