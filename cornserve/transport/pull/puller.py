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

HoldMemory = Callable[[], Callable[[], None]]
"""Keeps the memory of a tensor from being reused, even if the tensor is freed. Returns a function that ends this."""


@dataclass(frozen=True, slots=True)
class PullSource:
    """The memory of a tensor that another node pulls from this process."""

    view: memoryview
    is_current: Callable[[], bool]
    """Returns whether the memory still belongs to the tensor. Call it before each read, and after the last one."""
    hold_memory: HoldMemory


@dataclass(frozen=True, slots=True)
class PullTarget:
    """The memory of this process that a pull fills with a tensor."""

    view: memoryview
    hold_memory: HoldMemory


class HungPullError(OSError):
    """The library has not ended a pull, and may still write to the memory: another protocol must not fill it."""


FindSource = Callable[[bytes], PullSource | None]
"""Returns the tensor with a capability, or None if it has been freed."""


class Puller(Protocol):
    protocol: PullProtocol
    """Producer and consumer must use the same one."""

    def serve(self, find: FindSource) -> ConnectionFactories:
        """Lets consumers pull the tensors that `find` returns, over connections to this process."""

    async def pull(self, endpoint: str, capability: bytes, into: PullTarget) -> None:
        """Fills `into`. Nothing writes to it after the call, even if the call fails, unless its memory is held.

        Raises:
            LostError: the producer has freed the tensor.
            HungPullError: something may still write to `into`.
            OSError: the producer cannot be reached.
        """

    def disconnect(self, endpoint: str) -> None:
        """Closes idle connections to a producer that has ended."""

    async def close(self) -> None: ...
