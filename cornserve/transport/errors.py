"""Errors of the data plane. These errors are not defects: the gateway can run the producer of a lost tensor again."""

from __future__ import annotations


class TransportError(Exception):
    """A tensor cannot be stored or received."""


class TensorTooLargeError(TransportError):
    """A request would exceed its quota of a slab. Waiting does not help."""

    def __init__(self, subject: str, wanted: int, limit: int) -> None:
        super().__init__(
            f"{subject} needs {_mib(wanted)} of tensors at once, and a request may have {_mib(limit)} of a slab: "
            "send less in one request"
        )
        self.wanted = wanted
        self.limit = limit


class SlabError(TransportError):
    """The file system or the machine is full: the slab, or one more tensor, does not get its memory."""


class DuplicateProductionError(TransportError):
    """The same attempt of an invocation has begun here already, and its production has not ended."""


class LostError(TransportError):
    """The producer has ended, has revoked the tensor, or runs another attempt."""


class StaleError(TransportError):
    """The memory has been reused: bytes that were read from it may belong to another tensor."""


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"
