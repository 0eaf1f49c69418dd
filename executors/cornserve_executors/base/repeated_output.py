"""Removes the delivered part from the output of an invocation that runs again from its start."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final, TypeVar

from cornserve.task.output import OutputLayout
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.context import InvocationCaller
from cornserve_executors.base.executor import NotRepeatedError

Part = TypeVar("Part", str, list[int])

MAX_BUFFERED: Final = 2048
"""The steps of ten images, one of which may run to its end before the others begin."""


def strip_delivered(new: Part, delivered: Part) -> tuple[Part, Part]:
    """Removes what a new part of an output and the delivered rest both begin with.

    Raises `NotRepeatedError` if neither is the beginning of the other.
    """
    common = min(len(new), len(delivered))
    if new[:common] != delivered[:common]:
        raise NotRepeatedError
    return new[common:], delivered[common:]


class RepeatedOutput:
    """The streams of an invocation, of which some items have been sent.

    Args:
        max_buffered: the number of new items that may come before all others have come again. They wait until then.
    """

    def __init__(
        self, layout: OutputLayout, delivered: Iterable[pb.OutputChunk], caller: InvocationCaller, *, max_buffered: int
    ) -> None:
        self._layout = layout
        self._delivered = Counter((chunk.output, self._normalized(chunk.output, chunk.item)) for chunk in delivered)
        """Items that were sent and have not come again."""
        self._buffered: deque[tuple[str, bytes]] = deque()
        self._max_buffered = max_buffered
        self._caller = caller
        self._lock = asyncio.Lock()
        """Keeps the order of items that concurrent tasks send."""

    async def send(self, output: str, item: bytes) -> None:
        """Sends an item, unless it was sent. Raises `NotRepeatedError` if other items should have come."""
        async with self._lock:
            if not self._delivered:
                await self._caller.send(output, item)
                return
            key = output, self._normalized(output, item)
            if key in self._delivered:
                self._delivered[key] -= 1
                if not self._delivered[key]:
                    del self._delivered[key]
            elif len(self._buffered) < self._max_buffered:
                self._buffered.append((output, item))
            else:
                raise NotRepeatedError
            while self._buffered and not self._delivered:
                await self._caller.send(*self._buffered.popleft())

    def wants_hand_over(self) -> bool:
        return self._caller.wants_hand_over()

    def on_hand_over(self, callback: Callable[[], None]) -> None:
        self._caller.on_hand_over(callback)

    def check_complete(self) -> None:
        """Raises `NotRepeatedError` if items that were sent have not come again."""
        if self._delivered:
            raise NotRepeatedError

    def _normalized(self, output: str, item: bytes) -> bytes:
        """Returns the digest of the item as JSON with all fields. The caller may have encoded it in another way."""
        adapter = self._layout.streams[output]
        return sha256(adapter.dump_json(adapter.validate_json(item))).digest()
