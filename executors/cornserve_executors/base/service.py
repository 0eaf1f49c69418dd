"""The gRPC side of an executor: many invocations over each caller's one stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
from pydantic import ValidationError

from cornserve.task.output import Output
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

log = logging.getLogger(__name__)


class ExecutorService(executor_pb2_grpc.ExecutorServicer):
    """Serves one executor. `state` says whether it takes invocations."""

    def __init__(self, executor: Executor[Any, Any, Any], state: State, metrics: Metrics) -> None:
        self._executor = executor
        self._state = state
        self._metrics = metrics

    async def Invoke(  # noqa: N802 - gRPC's spelling
        self,
        request_iterator: AsyncIterator[pb.InvokeRequest],
        context: grpc.aio.ServicerContext[pb.InvokeRequest, pb.InvokeResponse],
    ) -> AsyncIterator[pb.InvokeResponse]:
        outbox = Outbox()
        reader = asyncio.create_task(self._read(request_iterator, outbox))
        try:
            async for frame in outbox.frames():
                yield frame
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, frames: AsyncIterator[pb.InvokeRequest], outbox: Outbox) -> None:
        """Owns the tasks of all invocations of a stream; they end with it."""
        calls: dict[int, asyncio.Task[None]] = {}
        try:
            async for frame in frames:
                for command in frame.commands:
                    match command.WhichOneof("kind"):
                        case "start":
                            task = asyncio.create_task(self._run(command.call, command.start, outbox))
                            calls[command.call] = task
                            task.add_done_callback(partial(_forget, calls, command.call, outbox))
                        case "cancel" if command.call in calls:
                            calls[command.call].cancel()
            await asyncio.gather(*calls.values(), return_exceptions=True)
        finally:
            for task in list(calls.values()):
                task.cancel()
            await asyncio.gather(*calls.values(), return_exceptions=True)
            outbox.close()

    async def _run(self, call: int, start: pb.Start, outbox: Outbox) -> None:
        if not self._state.accepts:
            outbox.end(call, pb.CODE_UNAVAILABLE, f"the executor is {self._state.description}")
            return
        with self._state.running(), self._metrics.invocation() as observed:
            code, message, values = await self._outcome(call, start, outbox)
            observed.code = pb.Code.Name(code).removeprefix("CODE_")
        outbox.end(call, code, message, values)

    async def _outcome(self, call: int, start: pb.Start, outbox: Outbox) -> tuple[pb.Code.ValueType, str, bytes]:
        try:
            async with asyncio.timeout(start.timeout_ms / 1000 if start.timeout_ms else None):
                return pb.CODE_OK, "", await self._invoke(call, start, outbox)
        except asyncio.CancelledError:
            return pb.CODE_CANCELLED, "cancelled", b""
        except TimeoutError:
            return pb.CODE_DEADLINE_EXCEEDED, f"not done within {start.timeout_ms} ms", b""
        except (InvalidRequestError, ValidationError) as error:
            return pb.CODE_INVALID_ARGUMENT, str(error), b""
        except OverloadedError as error:
            return pb.CODE_RESOURCE_EXHAUSTED, str(error), b""
        except EngineDeadError as error:
            self._state.engine_died(str(error))
            return pb.CODE_UNAVAILABLE, f"the engine died: {error}", b""
        except Exception as error:
            log.exception("invocation %s/%d failed", start.request_id, start.invocation)
            return pb.CODE_INTERNAL, f"{type(error).__name__}: {error}", b""

    async def _invoke(self, call: int, start: pb.Start, outbox: Outbox) -> bytes:
        if start.inputs:
            raise InvalidRequestError("this executor takes no tensors or streams as input")
        request = self._executor.request_type.model_validate_json(start.request)
        outputs = frozenset(output.name for output in start.outputs)

        async def send(output: str, item: bytes) -> None:
            await outbox.chunk(call, output, item)

        result: Output = await self._executor.invoke(
            request, Call(start.request_id, start.invocation, start.attempt, outputs, send)
        )
        return result.values_json()

    async def Observe(  # noqa: N802 - gRPC's spelling
        self,
        request: pb.ObserveRequest,
        context: grpc.aio.ServicerContext[pb.ObserveRequest, pb.Observation],
    ) -> AsyncIterator[pb.Observation]:
        async for observation in self._state.observations():
            yield observation


def _forget(calls: dict[int, asyncio.Task[None]], call: int, outbox: Outbox, task: asyncio.Task[None]) -> None:
    calls.pop(call, None)
    if task.cancelled():  # before it ran at all, else it has said so itself
        outbox.end(call, pb.CODE_CANCELLED, "cancelled")
