"""Serves the callers of an executor. Each caller runs many invocations over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from cornserve.concurrency import run_unless
from cornserve.memory_limit import memory_limit_bytes
from cornserve.observe import logs
from cornserve.transport import ProductionId, Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.codec import MessageSizeError, ProtocolError
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import EXECUTOR
from cornserve.wire.listener import ConnectionFactories
from cornserve_executors.base import invocation
from cornserve_executors.base.compute_time import ComputeTime
from cornserve_executors.base.executor import EngineDeadError, Executor
from cornserve_executors.base.load import CallerLoad, ExecutorLoad
from cornserve_executors.base.metrics import ExecutorMetrics
from cornserve_executors.base.running_invocations import RunningInvocations
from cornserve_executors.base.state import ExecutorState
from cornserve_executors.base.tensors import InvocationTensors, RetainedProductions
from cornserve_executors.base.trace import invocation_span

ABORT_TIMEOUT_SECONDS = 1.0
"""The time in which cancelled invocations must end."""

DISCONNECT_TIMEOUT_SECONDS = 1.0
"""The time in which callers must read the last events."""

INPUTS_SHARE = 4
"""The inputs of all invocations use one part in this many of the memory."""

MAX_UNSENT_CHUNKS = 4096
"""Streams to a caller pause while this many of its events, or `MAX_UNSENT_BYTES`, are unsent."""


class ExecutorService:
    """Serves one executor.

    Args:
        state: decides whether callers and invocations are accepted.
        queue: how many invocations run or wait at most; the service refuses further ones.
    """

    def __init__(
        self,
        executor: Executor[Any, Any, Any],
        state: ExecutorState,
        metrics: ExecutorMetrics,
        transport: Transport,
        queue: int = 1024,
    ) -> None:
        self._executor = executor
        self._state = state
        self._metrics = metrics
        self._transport = transport
        self._invocations = RunningInvocations(queue, memory_limit_bytes() // INPUTS_SHARE, metrics)
        self.load = ExecutorLoad(metrics)
        self._callers: dict[asyncio.Task[None], CallerSession] = {}
        self._abort_reason = ""

    @property
    def description(self) -> pb.Description:
        executor = self._executor
        return pb.Description(
            max_model_len=executor.max_model_len,
            max_running=executor.max_running,
            limits_consumers=executor.limits_consumers,
            model_digest=executor.model_digest,
        )

    @property
    def connection_factories(self) -> ConnectionFactories:
        return {EXECUTOR.preamble: self._accept}

    def _accept(self) -> MessageConnection[pb.Event, pb.Command]:
        session = CallerSession(self, is_accepted=self._state.add_caller())
        caller = asyncio.create_task(session.serve())
        self._callers[caller] = session
        caller.add_done_callback(self._remove_caller)
        return session.connection

    def _remove_caller(self, caller: asyncio.Task[None]) -> None:
        if self._callers.pop(caller).is_accepted:
            self._state.remove_caller()

    async def abort(self, reason: str) -> None:
        """Ends all running invocations with ABORTED, and later ones with UNAVAILABLE: another executor may run
        them."""
        self._abort_reason = reason
        for task in self._invocations.tasks:
            task.cancel()
        if self._invocations.tasks:
            await asyncio.wait(self._invocations.tasks, timeout=ABORT_TIMEOUT_SECONDS)

    async def disconnect(self) -> None:
        """Closes all connections once the callers have received all events."""
        for session in self._callers.values():
            session.connection.finish()
        if self._callers:
            await asyncio.wait(self._callers, timeout=DISCONNECT_TIMEOUT_SECONDS)
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    def start(self, call: int, start: pb.Start, nbytes: int, caller: CallerSession) -> asyncio.Task[None] | None:
        """Runs an invocation. Sends the refusal and returns None if the executor does not accept it.

        Args:
            nbytes: the size of the encoded start.
        """
        attempt = ProductionId(start.request_id, start.invocation, start.attempt)
        inputs = len(start.inputs)
        refusal = self._refusal(attempt, nbytes, inputs, caller)
        if refusal is not None:
            caller.send_end(call, refusal)
            return None
        running = RunningCall(caller, call, ComputeTime(self._metrics.compute_clock))
        tensors = InvocationTensors(
            self._transport,
            start,
            self._metrics,
            running.compute_time,
            self._executor.layout.tensor_streams,
            running.send_taken,
        )
        task = asyncio.create_task(self._run(call, start, tensors, caller))
        caller.running[call], caller.tensors[call] = running, tensors
        self._invocations.add(attempt, nbytes, inputs, task)
        caller.load.start(call, start.tokens)
        task.add_done_callback(partial(self._finish, call, caller))
        return task

    def _refusal(self, attempt: ProductionId, nbytes: int, inputs: int, caller: CallerSession) -> pb.End | None:
        """Returns the end of an invocation that this executor does not accept, or None."""
        if self._abort_reason:
            return pb.End(code=pb.CODE_UNAVAILABLE, message=self._abort_reason)
        if not (caller.is_accepted and self._state.accepts_invocations):
            return pb.End(code=pb.CODE_UNAVAILABLE, message=f"the executor is {self._state.description}")
        return self._invocations.refusal(attempt, nbytes, inputs)

    async def _run(self, call: int, start: pb.Start, tensors: InvocationTensors, caller: CallerSession) -> None:
        request_id = start.client_request_id or start.request_id
        logs.bind(request_id=request_id, invocation=start.invocation, attempt=start.attempt)
        executor = type(self._executor).__name__
        running = caller.running[call]
        with self._metrics.invocation() as outcome, invocation_span(executor, start, outcome):
            end = await self._outcome(start, tensors, running)
            end.compute_seconds = running.compute_time.end()
            outcome.code = pb.Code.Name(end.code).removeprefix("CODE_")
        production = tensors.take_production()
        is_retained = end.code == pb.CODE_OK or end.has_state
        if production is not None and is_retained:
            tensors.end_streams()
            caller.retained.add(call, production, invocation.timeout_seconds(start))
        caller.send_end(call, end)
        if production is not None and not is_retained:
            production.revoke()  # After the end: otherwise, the caller may learn first that consumers lost their input.
        await tensors.release_inputs()

    async def _outcome(self, start: pb.Start, tensors: InvocationTensors, caller: RunningCall) -> pb.End:
        try:
            end = await invocation.run(self._executor, start, tensors, caller)
            # In Python 3.11, `asyncio.wait_for` of a library can drop a cancellation.
            return self._cancelled if caller.is_cancelled else end
        except asyncio.CancelledError:
            return self._cancelled
        except EngineDeadError as error:
            self._state.set_engine_dead(str(error))
            return pb.End(code=pb.CODE_ABORTED, message=f"the engine died: {error}")

    def _finish(self, call: int, caller: CallerSession, task: asyncio.Task[None]) -> None:
        caller.calls.pop(call, None)
        if (running := caller.running.pop(call, None)) is not None:
            running.compute_time.end()
        caller.tensors.pop(call, None)
        caller.load.end(call)
        if task.cancelled():  # before it started, otherwise `_run` has sent the end
            caller.send_end(call, self._cancelled)

    @property
    def _cancelled(self) -> pb.End:
        if self._abort_reason:
            return pb.End(code=pb.CODE_ABORTED, message=self._abort_reason)
        return pb.End(code=pb.CODE_CANCELLED, message="cancelled")


class RunningCall:
    """A running call, for its invocation."""

    def __init__(self, session: CallerSession, call: int, compute_time: ComputeTime) -> None:
        self.compute_time = compute_time
        self._session = session
        self._call = call
        self._wants_hand_over = False
        self._on_hand_over: Callable[[], None] | None = None
        self.is_cancelled = False

    async def send(self, output: str, item: bytes) -> None:
        await self._session.send_chunk(self._call, output, item)

    def send_taken(self, index: int) -> None:
        self._session.send_taken(self._call, index)

    def hand_over(self) -> None:
        self._wants_hand_over = True
        if self._on_hand_over is not None:
            self._on_hand_over()

    def on_hand_over(self, callback: Callable[[], None]) -> None:
        self._on_hand_over = callback

    def wants_hand_over(self) -> bool:
        return self._wants_hand_over


class CallerSession:
    """The invocations that one caller starts over its connection. They are cancelled when the connection closes."""

    def __init__(self, service: ExecutorService, *, is_accepted: bool) -> None:
        self.connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, self._handle_command)
        self.is_accepted = is_accepted
        self.retained = RetainedProductions()
        self.load = CallerLoad(service.load)
        self._service = service
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.running: dict[int, RunningCall] = {}
        self.tensors: dict[int, InvocationTensors] = {}
        """The tensors of each running invocation."""
        self._no_more_commands = asyncio.Event()

    async def serve(self) -> None:
        """Returns when the connection is closed and its invocations have ended."""
        if (description := self._service.description) != pb.Description():
            self.connection.send(pb.Event(description=description))
        try:
            if await run_unless(self.connection.closed, self._complete()):
                await self.connection.wait_closed()
        finally:
            self.connection.abort("the executor has closed the connection")  # no further command arrives
            await self._cancel_all()
            await self.connection.wait_closed()

    async def send_chunk(self, call: int, output: str, item: bytes) -> None:
        """Waits while the caller reads too slowly."""
        await self.connection.wait_for_capacity(MAX_UNSENT_CHUNKS)
        chunk = pb.OutputChunk(output=output, item=item)
        self.connection.send(pb.Event(call=call, chunk=chunk, load=self.load.send_chunk(call)))

    def send_taken(self, call: int, index: int) -> None:
        """Informs the caller that an input of a running call is not read any more."""
        self.connection.send(pb.Event(call=call, taken=pb.Taken(inputs=[index])))

    def send_end(self, call: int, end: pb.End) -> None:
        try:
            self.connection.send(pb.Event(call=call, end=end, load=self.load.report()))
        except MessageSizeError as error:
            self.send_end(call, pb.End(code=pb.CODE_INTERNAL, message=f"the output is too large: {error}"))
            self.retained.revoke(call)

    def _handle_command(self, command: pb.Command | None) -> None:
        if command is None:
            self._no_more_commands.set()
            return
        call = command.call
        match command.WhichOneof("kind"):
            case "start":
                if call in self.calls or call in self.retained:
                    raise ProtocolError(f"call {call} is in use: give each call another number")
                task = self._service.start(call, command.start, self.connection.message_bytes, self)
                if task is not None:
                    self.calls[call] = task
            case "cancel":
                self.retained.revoke(call)  # the invocation may have ended before the caller sent this
                if call in self.calls:
                    self.running[call].is_cancelled = True
                    self.calls[call].cancel()
            case "discard_streams":
                if call in self.tensors:
                    self.tensors[call].discard_streams(command.discard_streams.outputs)
            case "hand_over":
                if call in self.running:
                    self.running[call].hand_over()
            case "bind_consumer":
                consumer, replicas = command.bind_consumer.endpoint, max(1, command.bind_consumer.replicas)
                if call in self.retained:
                    self.retained.bind_consumer(call, consumer, replicas)
                elif call in self.tensors:
                    self.tensors[call].bind_consumer(consumer, replicas)
            case "release":
                self.retained.release(call)
            case None:
                self.connection.abort("the caller sent an unknown command")

    async def _complete(self) -> None:
        """Finishes the connection after the last invocation."""
        await self._no_more_commands.wait()
        await asyncio.gather(*self.calls.values(), return_exceptions=True)
        self.retained.revoke_all()
        self.connection.finish()

    async def _cancel_all(self) -> None:
        for task in self.calls.values():
            task.cancel()
        await asyncio.gather(*self.calls.values(), return_exceptions=True)
        self.retained.revoke_all()
