"""What an executor has to say on one line."""

from __future__ import annotations

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection

HIGH_WATER = 4096
"""Events that may wait before senders have to: a caller that reads too slowly slows what it asked for."""


class Outbox:
    def __init__(self, line: MessageConnection[pb.Event, pb.InvokeRequest]) -> None:
        self._line = line

    async def chunk(self, call: int, output: str, item: bytes) -> None:
        await self._line.room(HIGH_WATER)
        self._line.put(pb.Event(call=call, chunk=pb.OutputChunk(output=output, item=item)))

    def end(self, call: int, end: pb.End) -> None:
        self._line.put(pb.Event(call=call, end=end))

    def close(self) -> None:
        """Nothing follows after what is waiting."""
        self._line.end()
