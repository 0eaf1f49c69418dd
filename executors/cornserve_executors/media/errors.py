"""The error for a medium that an executor cannot use."""

from __future__ import annotations

from cornserve_executors.base import InvalidRequestError


class UnusableMediaError(InvalidRequestError):
    """A medium that cannot be decoded or encoded. The message begins with the medium's position in the request."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.reason = reason


class UnsupportedOptionError(InvalidRequestError):
    """An option of media that a model does not have. The message begins with the option's path in the request."""
