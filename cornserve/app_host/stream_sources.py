"""The streams of executors that an app's functions map. The gateway has their items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import Any

from cornserve.app_host.invocation_failure import invocation_error
from cornserve.exception_text import exception_message
from cornserve.task.errors import InvocationError
from cornserve.task.recording import Invocation
from cornserve.v1 import app_host_pb2 as pb
from cornserve.wire.connection import MessageConnection


class StreamSources:
    """Reads stream items from the gateway.

    Args:
        on_items: called with the session before code of the app gets a batch of items.
    """

    def __init__(
        self, connection: MessageConnection[pb.HostReply, pb.HostCommand], on_items: Callable[[int], None]
    ) -> None:
        self._connection = connection
        self._on_items = on_items
        self._calls = count(1)
        self._waiting: dict[int, asyncio.Future[pb.SourceItems]] = {}

    def receive(self, call: int, items: pb.SourceItems) -> None:
        """Handles the response to a read."""
        waiting = self._waiting.pop(call, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(items)

    async def read(self, session: int, invocation: Invocation, output: str) -> AsyncIterator[Sequence[Any]]:
        """Yields all items that have arrived since the last batch. Raises the invocation's error after the last one."""
        position = 0
        while True:
            source = await self._next(session, invocation.index, output, position)
            if source.items:
                position += len(source.items)
                self._on_items(session)
                yield [_load(invocation, output, item) for item in source.items]
            if source.HasField("failure"):
                raise invocation_error(source.failure)
            if source.ended:
                return

    async def _next(self, session: int, invocation: int, output: str, position: int) -> pb.SourceItems:
        call = next(self._calls)
        waiting: asyncio.Future[pb.SourceItems] = asyncio.get_running_loop().create_future()
        self._waiting[call] = waiting
        read = pb.SourceRead(session=session, position=position)
        read.origin.invocation, read.origin.output = invocation, output
        self._connection.send(pb.HostReply(call=call, source_read=read))
        try:
            return await waiting
        finally:
            self._waiting.pop(call, None)


def _load(invocation: Invocation, output: str, item: bytes) -> Any:
    try:
        return invocation.load_item(output, item)
    except ValueError as error:
        message = f"the executor sent an invalid {output!r}: {exception_message(error)}"
        raise InvocationError(invocation.task_name, invocation.index, "INTERNAL", message) from error
