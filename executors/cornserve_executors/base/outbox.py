"""What an executor has to say on one stream, gathered into frames.

While one frame is being written, further events pile up and leave together in the next: a loaded stream
needs fewer, larger messages, an idle one sends each event at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from cornserve.v1 import executor_pb2 as pb

HIGH_WATER = 4096
"""Events that may wait before senders have to: a caller that reads too slowly slows what it asked for."""


class Outbox:
    def __init__(self) -> None:
        self._events: list[pb.Event] = []
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._closed = False

    async def chunk(self, call: int, output: str, item: bytes) -> None:
        while len(self._events) >= HIGH_WATER:
            self._drained.clear()
            await self._drained.wait()
        self._put(pb.Event(call=call, chunk=pb.OutputChunk(output=output, item=item)))

    def end(self, call: int, end: pb.End) -> None:
        self._put(pb.Event(call=call, end=end))

    def close(self) -> None:
        """Ends `frames` after what is waiting."""
        self._closed = True
        self._filled.set()

    async def frames(self) -> AsyncIterator[pb.InvokeResponse]:
        while True:
            await self._filled.wait()
            self._filled.clear()
            events, self._events = self._events, []
            self._drained.set()
            if events:
                yield pb.InvokeResponse(events=events)
            elif self._closed:
                return
            if self._closed:
                self._filled.set()

    def _put(self, event: pb.Event) -> None:
        self._events.append(event)
        self._filled.set()
