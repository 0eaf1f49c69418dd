"""Identifies productions and tensors, and describes a tensor at its consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cornserve.transport.memory.segment import Location, SegmentMapping


class ProductionId(NamedTuple):
    """One attempt of an invocation."""

    request_id: str
    invocation: int
    attempt: int

    @property
    def invocation_key(self) -> tuple[str, int]:
        """Identifies the invocation, whichever attempt it is."""
        return self.request_id, self.invocation


@dataclass(frozen=True, slots=True)
class TensorId:
    """An output of one attempt of an invocation, and the process that runs it."""

    endpoint: str
    """`HOST:PORT` of the process, which accepts connections at the next port."""
    request_id: str
    invocation: int
    attempt: int
    output: str

    def __str__(self) -> str:
        return (
            f"output {self.output!r} of invocation {self.invocation} (attempt {self.attempt}) "
            f"of request {self.request_id} at {self.endpoint}"
        )


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor that the consumer can read."""

    dtype: str
    shape: tuple[int, ...]
    metadata: bytes
    view: memoryview
    """The bytes of the tensor, read-only. Within a process or node, this is the producer's memory."""
    location: Location
    """The position of the tensor for other processes on this node (see `SegmentReader`)."""
    mapping: SegmentMapping

    def check(self) -> None:
        """Raises `StaleError` if the producer has freed the tensor. Call it after the last read from the view."""
        self.mapping.check(self.location)
