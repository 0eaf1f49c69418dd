"""A caller of executors, spoken by hand: what any gateway, in any language, may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import CALLER


class Caller:
    """A line, on which whoever reads waits for the next frame."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[pb.InvokeResponse | None] = asyncio.Queue()
        self.line = MessageConnection(CALLER, self._frames.put_nowait)

    async def connect(self, endpoint: str) -> None:
        await self.line.connect(endpoint)

    def send(self, *commands: pb.Command) -> None:
        for command in commands:
            self.line.put(command)

    async def read(self) -> pb.InvokeResponse | None:
        """None: the executor has nothing more to say. Raises `ConnectionError` if it breaks off before."""
        reading, closing = asyncio.ensure_future(self._frames.get()), asyncio.ensure_future(self.line.closed())
        await asyncio.wait((reading, closing), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            closing.cancel()
            return reading.result()
        reading.cancel()
        raise ConnectionError(closing.result())

    async def __aiter__(self) -> AsyncIterator[pb.InvokeResponse]:
        while (frame := await self.read()) is not None:
            yield frame

    def end(self) -> None:
        """Nothing more will be started."""
        self.line.end()

    def leave(self) -> None:
        """As one that dies."""
        self.line.abort("the caller has left")


@asynccontextmanager
async def calling(endpoint: str) -> AsyncIterator[Caller]:
    caller = Caller()
    await caller.connect(endpoint)
    try:
        yield caller
    finally:
        caller.leave()
        await caller.line.closed()
