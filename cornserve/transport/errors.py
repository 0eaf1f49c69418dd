"""What can go wrong with a tensor on its way. None of it is a bug: whoever needs the tensor can have it made again."""

from __future__ import annotations


class TransportError(Exception):
    """A tensor cannot be had, or not be stored."""


class TooLargeError(TransportError):
    """It will not fit, however long one waits."""

    def __init__(self, what: str, wanted: int, limit: int) -> None:
        super().__init__(
            f"{what} needs {_mib(wanted)} of tensors at once, and a request may have {_mib(limit)} of a slab: "
            "send less in one request"
        )
        self.wanted = wanted
        self.limit = limit


class SlabError(TransportError):
    """The slab cannot be made: its directory is missing, not writable, or full."""


class LostError(TransportError):
    """The producer is gone, has taken its tensors back, or is not the attempt that was asked for."""


class StaleError(TransportError):
    """The memory has been given to somebody else: what was read from it may be another's."""


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"
