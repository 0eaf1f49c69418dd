"""A minimal client of the executor contract."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.invocations import STATE
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, CompletionRequest
from tests.executor_caller import Caller, calling

Chunks = ["chunks"]

_requests = itertools.count()
"""Numbers the requests: an executor refuses a second start of an attempt."""


@dataclass
class InvocationReply:
    """The events received so far."""

    chunks: list[ChatChunk] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    """The inputs that were taken."""
    has_ended: bool = False
    end: pb.End = field(default_factory=pb.End)

    @property
    def code(self) -> str:
        return pb.Code.Name(self.end.code).removeprefix("CODE_")

    @property
    def response(self) -> ChatResponse:
        """The response without the number of cached tokens, which depends on earlier requests."""
        response = self._whole_response
        return response.model_copy(update={"usage": response.usage.model_copy(update={"cached_tokens": 0})})

    @property
    def cached_tokens(self) -> int:
        return self._whole_response.usage.cached_tokens

    @property
    def _whole_response(self) -> ChatResponse:
        assert self.code == "OK", self.end.message
        return ChatResponse.model_validate_json(self.end.values)

    @property
    def text(self) -> str:
        assert self.response.text is not None
        return self.response.text


class ClientInvocation:
    """An invocation on a separate connection."""

    def __init__(self, caller: Caller, endpoint: str) -> None:
        self._caller = caller
        self._endpoint = endpoint
        self._request_id = f"request-{next(_requests)}"
        self._attempt = 0
        self._reply = InvocationReply()

    def start(
        self,
        request: bytes,
        *,
        stream: bool,
        delivered: Sequence[ChatChunk] = (),
        state_of: ClientInvocation | None = None,
        inputs: Sequence[pb.Input] = (),
    ) -> None:
        if state_of is not None:
            self._request_id, self._attempt = state_of._request_id, state_of._attempt + 1
        start = pb.Start(
            request_id=self._request_id,
            attempt=self._attempt,
            request=request,
            inputs=inputs if state_of is None else [*inputs, pb.Input(pending=state_of.output(STATE))],
            has_state=state_of is not None,
            outputs=Chunks if stream else [],
            delivered=[pb.OutputChunk(output="chunks", item=chunk.model_dump_json().encode()) for chunk in delivered],
        )
        self._caller.send(pb.Command(call=1, start=start))

    def output(self, name: str) -> pb.Pending:
        return pb.Pending(invocation=0, output=name, attempt=self._attempt, endpoint=self._endpoint)

    def release(self) -> None:
        self._caller.send(pb.Command(call=1, release=pb.Release()))

    def cancel(self) -> None:
        self._caller.send(pb.Command(call=1, cancel=pb.Cancel()))

    def hand_over(self) -> None:
        self._caller.send(pb.Command(call=1, hand_over=pb.HandOver()))

    def disconnect(self) -> None:
        """Breaks the connection, as the death of the caller does."""
        self._caller.abort()

    async def first_chunk(self) -> ChatChunk:
        async for reply in self._progress():
            if reply.chunks:
                return reply.chunks[0]
        raise AssertionError(f"no chunk; {self._reply.code}: {self._reply.end.message}")

    async def reply(self) -> InvocationReply:
        async for _ in self._progress():
            pass
        return self._reply

    async def _progress(self) -> AsyncIterator[InvocationReply]:
        if self._reply.has_ended:
            return
        async for event in self._caller:
            if event.HasField("chunk"):
                self._reply.chunks.append(ChatChunk.model_validate_json(event.chunk.item))
            elif event.HasField("taken"):
                self._reply.taken += event.taken.inputs
            elif event.HasField("end"):
                self._reply.end, self._reply.has_ended = event.end, True
            yield self._reply
            if self._reply.has_ended:
                return


class ExecutorClient:
    def __init__(self, endpoint: str, connections: AsyncExitStack) -> None:
        self._endpoint = endpoint
        self._connections = connections

    async def start(
        self,
        request: ChatRequest | CompletionRequest | bytes,
        *,
        stream: bool = True,
        delivered: Sequence[ChatChunk] = (),
        state_of: ClientInvocation | None = None,
        inputs: Sequence[pb.Input] = (),
    ) -> ClientInvocation:
        caller = await self._connections.enter_async_context(calling(self._endpoint))
        invocation = ClientInvocation(caller, self._endpoint)
        data = request if isinstance(request, bytes) else request.model_dump_json(exclude_defaults=True).encode()
        invocation.start(data, stream=stream, delivered=delivered, state_of=state_of, inputs=inputs)
        return invocation

    async def invoke(self, request: ChatRequest | CompletionRequest | bytes, *, stream: bool = True) -> InvocationReply:
        return await (await self.start(request, stream=stream)).reply()

    async def resume(
        self,
        request: ChatRequest | CompletionRequest,
        delivered: Sequence[ChatChunk],
        *,
        state_of: ClientInvocation | None = None,
    ) -> InvocationReply:
        """Continues a response after the chunks that another executor has delivered.

        Args:
            state_of: an invocation that was handed over, whose state is an input.
        """
        return await (await self.start(request, delivered=delivered, state_of=state_of)).reply()


@asynccontextmanager
async def connected(endpoint: str) -> AsyncIterator[ExecutorClient]:
    async with AsyncExitStack() as connections:
        yield ExecutorClient(endpoint, connections)
