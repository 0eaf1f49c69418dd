"""What has been announced to one consumer in this process, until it takes it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from cornserve.transport.errors import LostError
from cornserve.transport.tensor_id import TensorId
from cornserve.v1 import transfer_pb2 as pb


class Offer(NamedTuple):
    """A tensor that has been announced."""

    chunk: int
    tensor: pb.TensorRef


class Link(Protocol):
    """How to tell the producer what has been done with. Neither call may block."""

    def release(self, chunk: int) -> None: ...

    def unsubscribe(self) -> None: ...


class Intake:
    """Queues what a producer offers, in order, and remembers whether more is to come.

    Args:
        recall: is called when an older request needs the room of what has been offered.
    """

    def __init__(self, source: TensorId, recall: Callable[[], None]) -> None:
        self.source = source
        self.recall: Final = recall
        self._offers: deque[Offer] = deque()
        self._changed = asyncio.Event()
        self._is_complete = False
        self._loss = ""
        self.lost = asyncio.Event()
        self.asked_us = time.time_ns() // 1000

    async def next(self) -> Offer | None:
        """The next tensor; None after the last.

        Raises:
            LostError: there will be none.
        """
        while not self._offers and not self._is_complete and not self._loss:
            self._changed.clear()
            await self._changed.wait()
        if self._loss:
            raise self.error
        return self._offers.popleft() if self._offers else None

    @property
    def error(self) -> LostError:
        return LostError(f"{self.source} is lost: {self._loss}")

    def offer(self, offer: Offer) -> None:
        self._offers.append(offer)
        self._changed.set()

    def complete(self) -> None:
        self._is_complete = True
        self._changed.set()

    def lose(self, reason: str) -> None:
        self._loss = self._loss or reason
        self.lost.set()
        self._changed.set()
