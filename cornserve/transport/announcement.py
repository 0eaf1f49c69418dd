"""What the producer tells of a tensor, and whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cornserve.transport.store import Block
from cornserve.v1 import transfer_pb2 as pb


@dataclass(frozen=True, slots=True)
class Published:
    """A block that has been written, and what others are told of it."""

    block: Block
    ref: pb.TensorRef


class Consumer(Protocol):
    """Whoever has subscribed to an output. None of the calls may block, or call back."""

    def on_tensor(self, chunk: int, tensor: pb.TensorRef) -> None: ...

    def on_end(self) -> None:
        """The stream is complete."""

    def on_recall(self) -> None:
        """An older request needs the room: whoever has not begun to use the tensors is to give them back."""

    def on_lost(self, reason: str) -> None:
        """The last call."""
