"""Errors let go of what they have seen.

A traceback keeps what every function on the way had in hand: bodies, images, tensors. It is mostly part of a circle,
because some function on the way had the error itself in hand, or a future with it; and the garbage collector finds
circles late. A few requests that fail would hold more memory than all that are served.
"""

from __future__ import annotations


def clear_traceback(error: BaseException) -> None:
    """Takes from an error, and from those that led to it, where they were raised."""
    errors: list[BaseException | None] = [error]
    while errors:
        if (one := errors.pop()) is not None:
            errors += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
            one.__traceback__ = one.__cause__ = one.__context__ = None
