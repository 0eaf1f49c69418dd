"""Describes exceptions in one line."""

from __future__ import annotations


def exception_text(error: BaseException) -> str:
    """Returns the type and the message of an exception, or only the type of one without a message."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")
