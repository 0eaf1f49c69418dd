"""The interface for copying a tensor from another node.

The consumer pulls when it has space, so a producer cannot flood it. An implementation copies bytes between two slabs
and never delivers bytes of another tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cornserve.pull_protocol import PullProtocol
from cornserve.wire.listener import ConnectionFactories


@dataclass(frozen=True, slots=True)
class PullSource:
    """The memory of a tensor that another node pulls from this process."""

    view: memoryview
    is_current: Callable[[], bool]
    """Returns whether the memory still belongs to the tensor. Call it before each read, and after the last one."""
    hold_memory: Callable[[], Callable[[], None]]
    """Keeps the memory from being reused, even if the tensor is freed. Returns a function that ends this."""


FindSource = Callable[[bytes], PullSource | None]
"""Returns the tensor with a capability, or None if it has been freed."""


class Puller(Protocol):
    protocol: PullProtocol
    """Producer and consumer must use the same one."""

    def serve(self, find: FindSource) -> ConnectionFactories:
        """Lets consumers pull the tensors that `find` returns, over connections to this process."""

    async def pull(self, endpoint: str, capability: bytes, into: memoryview) -> None:
        """Fills `into`. Nothing writes to `into` after the call, even if the call fails.

        Raises:
            LostError: the producer has freed the tensor.
            OSError: the producer cannot be reached.
        """

    def disconnect(self, endpoint: str) -> None:
        """Closes idle connections to a producer that has ended."""

    async def close(self) -> None: ...
