"""Ends of the transfer protocol that send any message, for tests of the other end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from cornserve.transport.protocol import CONSUMER_CODEC, PRODUCER_CODEC
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.listener import ConnectionListener
from tests.credentials import CREDENTIALS


class RawConsumer:
    """A consumer without any state. It sends no heartbeats."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[pb.TransferEvent | None] = asyncio.Queue()
        self.connection = MessageConnection(CONSUMER_CODEC, self._events.put_nowait)

    def subscribe(
        self, number: int, request_id: str, output: str = "embeddings", attempt: int = 0, invocation: int = 0
    ) -> None:
        subscribe = pb.Subscribe(request_id=request_id, output=output, attempt=attempt, invocation=invocation)
        self.connection.send(pb.TransferCommand(subscription=number, subscribe=subscribe))

    async def event(self, kind: str) -> pb.TransferEvent:
        """Returns the next event of this kind; ignores others."""
        while True:
            event = await self._events.get()
            if event is not None and event.WhichOneof("kind") == kind:
                return event


@asynccontextmanager
async def consuming(endpoint: str) -> AsyncIterator[RawConsumer]:
    consumer = RawConsumer()
    await consumer.connection.connect(endpoint, CREDENTIALS)
    try:
        yield consumer
    finally:
        consumer.connection.abort("the test has ended")
        await consumer.connection.wait_closed()


class RawProducer:
    """Describes itself, and sends the same events to each subscription."""

    def __init__(self, producer: pb.Producer | None, *events: pb.TransferEvent) -> None:
        self._producer = producer
        self._events = events

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yields the endpoint."""
        async with AsyncExitStack() as stack:
            factories = {PRODUCER_CODEC.preamble: lambda: self._create_connection(stack)}
            listener = ConnectionListener(factories, CREDENTIALS)
            stack.push_async_callback(listener.close)
            yield await listener.listen("127.0.0.1:0")

    def _create_connection(self, stack: AsyncExitStack) -> MessageConnection[pb.TransferEvent, pb.TransferCommand]:
        def respond(command: pb.TransferCommand | None) -> None:
            if command is not None and command.HasField("subscribe"):
                for event in self._events:
                    sent = pb.TransferEvent(subscription=command.subscription)
                    sent.MergeFrom(event)
                    connection.send(sent)

        connection = MessageConnection(PRODUCER_CODEC, respond)
        if self._producer is not None:
            connection.send(pb.TransferEvent(producer=self._producer))
        stack.push_async_callback(connection.wait_closed)
        stack.callback(connection.abort, "the test has ended")
        return connection
