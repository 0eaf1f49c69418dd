"""The gRPC side of an executor: many invocations over each caller's one stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

import grpc
from pydantic import ValidationError

from cornserve.observe import logs
from cornserve.observe.discretion import outline
from cornserve.task.output import Output
from cornserve.task.references import Blob, Given, Origin, Tensor
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve_executors.base.executor import (
    Call,
    EngineDeadError,
    Executor,
    InvalidRequestError,
    OverloadedError,
)
from cornserve_executors.base.metrics import Metrics
from cornserve_executors.base.outbox import Outbox
from cornserve_executors.base.state import State
from cornserve_executors.base.trace import traced

log = logging.getLogger(__name__)

ABORT_SECONDS = 1.0
"""How long invocations may take to end once they are cancelled."""


class ExecutorService(executor_pb2_grpc.ExecutorServicer):
    """Serves one executor. `state` says whether it takes invocations.

    Args:
        queue: how many it works on or keeps waiting at most; any more are for another replica, or for later.
    """

    def __init__(self, executor: Executor[Any, Any, Any], state: State, metrics: Metrics, queue: int = 1024) -> None:
        self._executor = executor
        self._state = state
        self._metrics = metrics
        self._queue = queue
        self._calls: set[asyncio.Task[None]] = set()
        self._end = ""
        """Why everything is cancelled, once it is."""

    async def abort(self, reason: str) -> None:
        """Ends whatever still runs, as something that another executor may take over."""
        self._end = reason
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=ABORT_SECONDS)

    async def Invoke(  # noqa: N802 - gRPC's spelling
        self,
        request_iterator: AsyncIterator[pb.InvokeRequest],
        context: grpc.aio.ServicerContext[pb.InvokeRequest, pb.InvokeResponse],
    ) -> AsyncIterator[pb.InvokeResponse]:
        outbox = Outbox()
        with self._state.calling() as is_taken:
            reader = asyncio.create_task(self._read(request_iterator, outbox, is_taken))
            try:
                async for frame in outbox.frames():
                    yield frame
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, frames: AsyncIterator[pb.InvokeRequest], outbox: Outbox, is_taken: bool) -> None:
        """Owns the tasks of all invocations of a stream; they end with it."""
        calls: dict[int, asyncio.Task[None]] = {}
        try:
            async for frame in frames:
                for command in frame.commands:
                    match command.WhichOneof("kind"):
                        case "start" if not (is_taken and self._state.accepts):
                            refusal = f"the executor is {self._state.description}"
                            outbox.end(command.call, pb.CODE_UNAVAILABLE, refusal)
                        case "start" if len(self._calls) >= self._queue:
                            self._metrics.refused()
                            refusal = f"the executor has {self._queue} invocations (see the limit `queue`)"
                            outbox.end(command.call, pb.CODE_RESOURCE_EXHAUSTED, refusal)
                        case "start":
                            task = asyncio.create_task(self._run(command.call, command.start, outbox))
                            calls[command.call] = task
                            self._calls.add(task)
                            task.add_done_callback(partial(self._forget, calls, command.call, outbox))
                        case "cancel" if command.call in calls:
                            calls[command.call].cancel()
            await asyncio.gather(*calls.values(), return_exceptions=True)
        finally:
            for task in list(calls.values()):
                task.cancel()
            await asyncio.gather(*calls.values(), return_exceptions=True)
            outbox.close()

    async def _run(self, call: int, start: pb.Start, outbox: Outbox) -> None:
        logs.bind(request_id=start.request_id, invocation=start.invocation, attempt=start.attempt)
        executor = type(self._executor).__name__
        with self._metrics.invocation() as observed, traced(executor, start, observed):
            code, message, values = await self._outcome(call, start, outbox)
            observed.code = pb.Code.Name(code).removeprefix("CODE_")
        outbox.end(call, code, message, values)

    async def _outcome(self, call: int, start: pb.Start, outbox: Outbox) -> tuple[pb.Code.ValueType, str, bytes]:
        try:
            async with asyncio.timeout(start.timeout_ms / 1000 if start.timeout_ms else None):
                return pb.CODE_OK, "", await self._invoke(call, start, outbox)
        except asyncio.CancelledError:
            return *self._cancelled, b""
        except TimeoutError:
            return pb.CODE_DEADLINE_EXCEEDED, "not done by the request's deadline", b""
        except (InvalidRequestError, ValidationError) as error:
            return pb.CODE_INVALID_ARGUMENT, str(error), b""
        except OverloadedError as error:
            return pb.CODE_RESOURCE_EXHAUSTED, str(error), b""
        except EngineDeadError as error:
            self._state.engine_died(str(error))
            return pb.CODE_ABORTED, f"the engine died: {error}", b""
        except Exception as error:
            log.error("the invocation failed:\n%s", outline(error))
            return pb.CODE_INTERNAL, f"{type(error).__name__}: {error}", b""

    async def _invoke(self, call: int, start: pb.Start, outbox: Outbox) -> bytes:
        if start.delivered and not self._executor.continues:
            raise InvalidRequestError("this executor does not go on from what another has sent")
        given = Given([_given(one) for one in start.inputs])
        request = self._executor.request_adapter.validate_json(start.request, context=given)

        async def send(output: str, item: bytes) -> None:
            await outbox.chunk(call, output, item)

        delivered = _by_output(start.delivered)
        result: Output = await self._executor.invoke(
            request, Call(start.request_id, start.invocation, start.attempt, frozenset(start.outputs), send, delivered)
        )
        return result.values_json()

    def _forget(
        self, calls: dict[int, asyncio.Task[None]], call: int, outbox: Outbox, task: asyncio.Task[None]
    ) -> None:
        calls.pop(call, None)
        self._calls.discard(task)
        if task.cancelled():  # before it ran at all, else it has said so itself
            outbox.end(call, *self._cancelled)

    @property
    def _cancelled(self) -> tuple[pb.Code.ValueType, str]:
        return (pb.CODE_ABORTED, self._end) if self._end else (pb.CODE_CANCELLED, "cancelled")

    async def Observe(  # noqa: N802 - gRPC's spelling
        self,
        request: pb.ObserveRequest,
        context: grpc.aio.ServicerContext[pb.ObserveRequest, pb.Observation],
    ) -> AsyncIterator[pb.Observation]:
        async for observation in self._state.observations():
            yield observation


def _given(one: pb.Input) -> Blob | Tensor:
    if one.HasField("pending"):
        return Tensor(Origin(one.pending.invocation, one.pending.output))
    return Blob(one.inline)


def _by_output(chunks: Iterable[pb.OutputChunk]) -> dict[str, list[bytes]]:
    items: dict[str, list[bytes]] = {}
    for chunk in chunks:
        items.setdefault(chunk.output, []).append(chunk.item)
    return items
