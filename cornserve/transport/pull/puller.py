"""The interface for copying a tensor from another node.

The consumer pulls when it has space, so a producer cannot flood it. An implementation copies bytes between two slabs
and never delivers bytes of another tensor. TCP is implemented; UCX and NIXL would serve RDMA networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Identifies a tensor in its producer's slab."""

    token: bytes
    offset: int
    nbytes: int
    generation: int


@dataclass(frozen=True, slots=True)
class PullSource:
    """The memory of a tensor that another node pulls from this process."""

    view: memoryview
    is_current: Callable[[], bool]
    """Returns whether the memory still belongs to the tensor. Call it after the last read."""


class Puller(Protocol):
    name: str
    """The name of the protocol. Producer and consumer must use the same protocol."""

    async def listen(self, host: str, find: Callable[[PullRequest], PullSource | None]) -> bytes:
        """Lets other nodes pull the tensors that `find` returns.

        Returns:
            the address at `host` that consumers need.
        """

    async def pull(self, host: str, address: bytes, request: PullRequest, into: memoryview) -> None:
        """Fills `into`. Nothing writes to `into` after the call, even if the call fails.

        Raises:
            LostError: the producer has freed the tensor.
            OSError: the producer cannot be reached.
        """

    def disconnect(self, host: str, address: bytes) -> None:
        """Closes idle connections to a producer that has ended."""

    async def close(self) -> None: ...
