"""Identifies productions and tensors, and describes a tensor at its consumer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cornserve.transport.memory.segment import Location, SegmentMapping

DTYPE_BYTES: Final = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
}
"""The size of an element in bytes, by the name of its dtype, which is that of torch."""

MAX_DIMENSIONS: Final = 16


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Returns the size of a tensor. Raises `ValueError` if the dtype is unknown or the shape is not possible."""
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"the dtype {dtype[:100]!r} is unknown: give one of {', '.join(DTYPE_BYTES)}")
    if len(shape) > MAX_DIMENSIONS or not all(size > 0 for size in shape):
        described = f"{tuple(shape[:MAX_DIMENSIONS])} ({len(shape)} dimensions)"
        raise ValueError(f"the shape {described} is invalid: give at most {MAX_DIMENSIONS} positive sizes")
    return DTYPE_BYTES[dtype] * math.prod(shape)


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
    """`HOST:PORT` at which the process accepts connections."""
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
