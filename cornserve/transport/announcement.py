"""What the producer tells of a tensor, and whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cornserve.transport.store import Block


@dataclass(frozen=True, slots=True)
class Tensor:
    """A block that has been written, and what is in it."""

    block: Block
    dtype: str
    shape: tuple[int, ...]
    metadata: bytes
    arrived_us: int
    published_us: int


class Consumer(Protocol):
    """Whoever has subscribed to an output. None of the calls may block, or call back."""

    def on_tensor(self, chunk: int, tensor: Tensor) -> None: ...

    def on_end(self) -> None:
        """The stream is complete."""

    def on_lost(self, reason: str) -> None:
        """The last call."""
