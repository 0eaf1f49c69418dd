"""The error for a medium that an executor cannot use."""

from __future__ import annotations

import re

from cornserve_executors.base import InvalidRequestError

MAX_REASON = 300
"""The maximum number of characters of a processor's reason."""

_ARRAY = re.compile(r" ?\[[\s\d.,eE+\-]*\.[\s\d.,eE+\-\[\]]*\]")
"""An array of floats, such as samples."""


class UnusableMediaError(InvalidRequestError):
    """A medium that cannot be decoded or encoded. The message begins with the medium's position in the request."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.reason = reason


class UnsupportedOptionError(InvalidRequestError):
    """An option of media that a model does not have. The message begins with the option's path in the request."""


def rejection_reason(error: Exception) -> str:
    """Returns why a model's processor rejects a medium, without the contents of the medium."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return " ".join(_ARRAY.sub("", str(error)).split())[:MAX_REASON] or type(error).__name__
