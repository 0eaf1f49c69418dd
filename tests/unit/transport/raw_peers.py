"""Ends of the transfer protocol that send any message, for tests of the other end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cornserve.transport.protocol import CONSUMER_CODEC
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.connection import MessageConnection


class RawConsumer:
    """A consumer without any state. It sends no heartbeats."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[pb.TransferEvent | None] = asyncio.Queue()
        self.connection = MessageConnection(CONSUMER_CODEC, self._events.put_nowait)

    def subscribe(self, number: int, request_id: str, output: str = "embeddings", attempt: int = 0) -> None:
        subscribe = pb.Subscribe(request_id=request_id, output=output, attempt=attempt)
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
    await consumer.connection.connect(endpoint)
    try:
        yield consumer
    finally:
        consumer.connection.abort("the test has ended")
        await consumer.connection.wait_closed()
