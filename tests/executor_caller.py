"""A minimal caller of executors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.invocations import CALLER
from tests.credentials import CREDENTIALS


class Caller:
    """A connection whose events can be awaited."""

    def __init__(self, credentials: ConnectionCredentials = CREDENTIALS) -> None:
        self._credentials = credentials
        self._events: asyncio.Queue[pb.Event | None] = asyncio.Queue()
        self.connection = MessageConnection(CALLER, self._events.put_nowait)

    async def connect(self, endpoint: str) -> None:
        await self.connection.connect(endpoint, self._credentials)

    def send(self, *commands: pb.Command) -> None:
        for command in commands:
            self.connection.send(command)

    async def read(self) -> pb.Event | None:
        """Returns the next event, or None when the executor sends no further one. Raises `ConnectionError` if the
        connection breaks."""
        reading = asyncio.ensure_future(self._events.get())
        closing = asyncio.ensure_future(self.connection.wait_closed())
        await asyncio.wait((reading, closing), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            closing.cancel()
            return reading.result()
        reading.cancel()
        raise ConnectionError(closing.result())

    async def __aiter__(self) -> AsyncIterator[pb.Event]:
        while (event := await self.read()) is not None:
            yield event

    def finish(self) -> None:
        """Announces that no further command follows."""
        self.connection.finish()

    def abort(self) -> None:
        """Breaks the connection, as the death of a caller does."""
        self.connection.abort("the caller has disconnected")


@asynccontextmanager
async def calling(endpoint: str, credentials: ConnectionCredentials = CREDENTIALS) -> AsyncIterator[Caller]:
    caller = Caller(credentials)
    await caller.connect(endpoint)
    try:
        yield caller
    finally:
        caller.abort()
        await caller.connection.wait_closed()
