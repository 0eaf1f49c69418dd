"""What an executor does for each of its callers: many invocations over one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from cornserve.observe import logs
from cornserve.transport import Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import EXECUTOR
from cornserve.wire.listener import Answers
from cornserve_executors.base import invocation
from cornserve_executors.base.call import Send
from cornserve_executors.base.executor import EngineDeadError, Executor
from cornserve_executors.base.metrics import Metrics
from cornserve_executors.base.outbox import Outbox
from cornserve_executors.base.state import State
from cornserve_executors.base.tensors import Kept, Tensors
from cornserve_executors.base.trace import traced

ABORT_SECONDS = 1.0
"""How long invocations may take to end once they are cancelled."""

LEAVE_SECONDS = 1.0
"""How long callers may take to read the last that is said to them."""


class ExecutorService(executor_pb2_grpc.ExecutorServicer):
    """Serves one executor. `state` says whether it takes invocations.

    Args:
        queue: how many it works on or keeps waiting at most; any more are for another replica, or for later.
    """

    def __init__(
        self,
        executor: Executor[Any, Any, Any],
        state: State,
        metrics: Metrics,
        transport: Transport,
        queue: int = 1024,
    ) -> None:
        self._executor = executor
        self._state = state
        self._metrics = metrics
        self._transport = transport
        self._queue = queue
        self._calls: set[asyncio.Task[None]] = set()
        self._callers: dict[asyncio.Task[None], MessageConnection[pb.Event, pb.InvokeRequest]] = {}
        self._end = ""
        """Why everything is cancelled, once it is."""

    async def abort(self, reason: str) -> None:
        """Ends whatever still runs, as something that another executor may take over."""
        self._end = reason
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=ABORT_SECONDS)

    @property
    def answers(self) -> Answers:
        return {EXECUTOR.greeting: self._answer}

    def _answer(self) -> MessageConnection[pb.Event, pb.InvokeRequest]:
        """Our end of a line that somebody opens."""
        frames: asyncio.Queue[pb.InvokeRequest | None] = asyncio.Queue()
        line = MessageConnection(EXECUTOR, frames.put_nowait)
        caller = asyncio.create_task(self._serve(line, _until_none(frames)))
        self._callers[caller] = line
        caller.add_done_callback(self._callers.pop)
        return line

    async def leave(self) -> None:
        """Leaves all callers, once they have been told everything."""
        for line in self._callers.values():
            line.end()
        if self._callers:
            await asyncio.wait(self._callers, timeout=LEAVE_SECONDS)
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _serve(
        self, line: MessageConnection[pb.Event, pb.InvokeRequest], frames: AsyncIterator[pb.InvokeRequest]
    ) -> None:
        """Until the caller leaves."""
        try:
            with self._state.calling() as is_taken:
                reader = asyncio.create_task(self._read(frames, Outbox(line), is_taken))
                try:
                    await line.closed()
                finally:
                    reader.cancel()
                    await asyncio.gather(reader, return_exceptions=True)
        finally:
            line.abort("the executor has left")

    async def _read(self, frames: AsyncIterator[pb.InvokeRequest], outbox: Outbox, is_taken: bool) -> None:
        """Owns the tasks of all invocations of a line; they end with it."""
        calls: dict[int, asyncio.Task[None]] = {}
        kept = Kept()
        try:
            async for frame in frames:
                for command in frame.commands:
                    match command.WhichOneof("kind"):
                        case "start" if not (is_taken and self._state.accepts):
                            refusal = f"the executor is {self._state.description}"
                            outbox.end(command.call, pb.End(code=pb.CODE_UNAVAILABLE, message=refusal))
                        case "start" if len(self._calls) - self._metrics.waiting >= self._queue:
                            self._metrics.refused()
                            refusal = f"the executor has {self._queue} invocations (see the limit `queue`)"
                            outbox.end(command.call, pb.End(code=pb.CODE_RESOURCE_EXHAUSTED, message=refusal))
                        case "start":
                            task = asyncio.create_task(self._run(command.call, command.start, outbox, kept))
                            calls[command.call] = task
                            self._calls.add(task)
                            task.add_done_callback(partial(self._forget, calls, command.call, outbox))
                        case "cancel":
                            kept.revoke(command.call)  # It may have ended when its caller did not know yet.
                            if command.call in calls:
                                calls[command.call].cancel()
                        case "release":
                            kept.release(command.call)
            await asyncio.gather(*calls.values(), return_exceptions=True)
        finally:
            for task in list(calls.values()):
                task.cancel()
            await asyncio.gather(*calls.values(), return_exceptions=True)
            kept.revoke_all()
            outbox.close()

    async def _run(self, call: int, start: pb.Start, outbox: Outbox, kept: Kept) -> None:
        logs.bind(request_id=start.request_id, invocation=start.invocation, attempt=start.attempt)
        executor = type(self._executor).__name__
        tensors = Tensors(self._transport, start, self._metrics)
        if self._executor.makes_tensors:
            tensors.begin_production()
        with self._metrics.invocation() as observed, traced(executor, start, observed):
            end = await self._outcome(start, tensors, partial(outbox.chunk, call))
            observed.code = pb.Code.Name(end.code).removeprefix("CODE_")
        production = tensors.take_production()
        if production is not None:
            if end.code == pb.CODE_OK:
                kept.keep(call, production, invocation.seconds_of(start))
            else:
                production.revoke()
        outbox.end(call, end)
        await tensors.let_go()

    async def _outcome(self, start: pb.Start, tensors: Tensors, send: Send) -> pb.End:
        try:
            return await invocation.run(self._executor, start, tensors, send)
        except asyncio.CancelledError:
            return self._cancelled
        except EngineDeadError as error:
            self._state.engine_died(str(error))
            return pb.End(code=pb.CODE_ABORTED, message=f"the engine died: {error}")

    def _forget(
        self, calls: dict[int, asyncio.Task[None]], call: int, outbox: Outbox, task: asyncio.Task[None]
    ) -> None:
        calls.pop(call, None)
        self._calls.discard(task)
        if task.cancelled():  # before it ran at all, else it has said so itself
            outbox.end(call, self._cancelled)

    @property
    def _cancelled(self) -> pb.End:
        if self._end:
            return pb.End(code=pb.CODE_ABORTED, message=self._end)
        return pb.End(code=pb.CODE_CANCELLED, message="cancelled")

    async def Observe(  # noqa: N802 - gRPC's spelling
        self,
        request: pb.ObserveRequest,
        context: grpc.aio.ServicerContext[pb.ObserveRequest, pb.Observation],
    ) -> AsyncIterator[pb.Observation]:
        async for observation in self._state.observations():
            yield observation


async def _until_none(frames: asyncio.Queue[pb.InvokeRequest | None]) -> AsyncIterator[pb.InvokeRequest]:
    while (frame := await frames.get()) is not None:
        yield frame
