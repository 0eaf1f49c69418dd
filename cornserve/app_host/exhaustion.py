"""Recognizes errors that mean that a host has used up its memory or its threads."""

from __future__ import annotations

_NO_THREAD = "can't start new thread"
"""The message of the interpreter's `RuntimeError`."""


def is_exhausted(error: BaseException | None) -> bool:
    """Returns whether the error, or one of its causes, is due to a lack of memory or of memory for threads."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD):
            return True
        error = error.__cause__ or error.__context__
    return False
