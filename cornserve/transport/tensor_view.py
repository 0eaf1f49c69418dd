"""A tensor, at its consumer."""

from __future__ import annotations

from dataclasses import dataclass

from cornserve.transport.segment import Location, Mapping


@dataclass(frozen=True, slots=True)
class TensorView:
    dtype: str
    shape: tuple[int, ...]
    metadata: bytes
    view: memoryview
    """Its bytes, read-only. In this process and on this node they are the producer's own memory."""
    location: Location
    """Where another process of this node finds it (see `Reader`)."""
    mapping: Mapping

    def check(self) -> None:
        """To be called after the last read from the view: the producer may have taken the tensor back meanwhile.

        Raises:
            StaleError: what has been read may be another tensor's.
        """
        self.mapping.check(self.location)
