"""How a tensor gets to another node.

The consumer pulls: it knows when it has room, so nobody can flood it. Whoever implements this (TCP here; UCX or NIXL
where there is RDMA) moves bytes between two slabs, and may not let a consumer have bytes of another tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor in its producer's slab."""

    token: bytes
    offset: int
    nbytes: int
    generation: int


@dataclass(frozen=True, slots=True)
class Export:
    """A tensor that somebody pulls from us."""

    view: memoryview
    is_current: Callable[[], bool]
    """To be asked when all has been read: the memory may have been given to another tensor meanwhile."""


class Puller(Protocol):
    name: str
    """Producer and consumer have to have the same."""

    async def open(self, host: str, find: Callable[[Piece], Export | None]) -> bytes:
        """Lets others pull what `find` gives.

        Returns:
            the address that they need, besides our host's.
        """

    async def pull(self, host: str, address: bytes, piece: Piece, into: memoryview) -> None:
        """Fills `into`. When it ends, however it does, nothing writes there any more.

        Raises:
            LostError: the producer has it no more.
            OSError: the producer cannot be reached.
        """

    def forget(self, host: str, address: bytes) -> None:
        """The producer is gone."""

    async def close(self) -> None: ...
