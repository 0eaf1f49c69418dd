"""Removes the delivered part from the output of an invocation that runs again from its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

from cornserve.task.output import OutputLayout
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.context import ChunkSender
from cornserve_executors.base.executor import NotRepeatedError

Part = TypeVar("Part", str, list[int])

MAX_HELD: Final = 64
"""The number of new items that may come before all items that were sent have come again."""


def remove_delivered(new: Part, delivered: Part) -> tuple[Part, Part]:
    """Removes what a new part of an output and the delivered rest both begin with.

    Raises `NotRepeatedError` if neither is the beginning of the other.
    """
    common = min(len(new), len(delivered))
    if new[:common] != delivered[:common]:
        raise NotRepeatedError
    return new[common:], delivered[common:]


class RepeatedOutput:
    """The streams of an invocation, of which some items have been sent.

    Items may come in another order, such as the steps of several images: new ones wait until all others have come
    again.
    """

    def __init__(self, layout: OutputLayout, delivered: Iterable[pb.OutputChunk], send: ChunkSender) -> None:
        self._layout = layout
        self._delivered = Counter((chunk.output, self._normalized(chunk.output, chunk.item)) for chunk in delivered)
        """Items that were sent and have not come again."""
        self._held: list[tuple[str, bytes]] = []
        self._send = send

    async def send(self, output: str, item: bytes) -> None:
        """Sends an item, unless it was sent. Raises `NotRepeatedError` if other items should have come."""
        if not self._delivered:
            await self._send(output, item)
            return
        key = output, self._normalized(output, item)
        if key in self._delivered:
            self._delivered -= Counter([key])
        else:
            self._held.append((output, item))
        if not self._delivered:
            for held in self._held:
                await self._send(*held)
        elif len(self._held) > MAX_HELD:
            raise NotRepeatedError

    def check_complete(self) -> None:
        """Raises `NotRepeatedError` if items that were sent have not come again."""
        if self._delivered:
            raise NotRepeatedError

    def _normalized(self, output: str, item: bytes) -> bytes:
        """Returns the item as JSON with all fields. The caller of the executor may have encoded it in another way."""
        adapter = self._layout.streams[output]
        return adapter.dump_json(adapter.validate_json(item))
