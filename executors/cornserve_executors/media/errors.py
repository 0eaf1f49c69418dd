"""The error for a medium that an executor cannot use."""

from __future__ import annotations

import re

from cornserve_executors.base import InvalidRequestError

MAX_REASON = 300
"""The maximum number of characters of a processor's reason."""

_NUMBERS = re.compile(r" ?\[[\s\d.,eE+\-\[\]]*+")
"""Numbers and brackets from an opening bracket on. Takes linear time, also for arrays without an end."""


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
    return " ".join(_NUMBERS.sub(_without_array, str(error)).split())[:MAX_REASON] or type(error).__name__


def _without_array(numbers: re.Match[str]) -> str:
    """Returns the part after an array of floats, such as samples, or all numbers if they are something else."""
    array, _, rest = numbers[0].rpartition("]")
    return rest if "." in array else numbers[0]
