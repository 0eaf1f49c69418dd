"""Tracebacks and reference cycles.

A traceback references the local variables of each frame that the error passed: bodies, images, tensors. The error is
often a local variable of one of these frames itself, directly or in a future, so that both form a reference cycle. Only
the garbage collector frees a cycle, and it runs late: a few failed requests would hold more memory than all active
ones. The same is true for objects of a request that reference each other.

Code on the request path therefore follows one rule: it clears the traceback of each error that it has handled, and
breaks reference cycles between objects of a request when the request ends.
"""

from __future__ import annotations

from collections.abc import Iterator


def clear_traceback(error: BaseException) -> None:
    """Removes traceback, cause and context from `error`, and from all errors that it references."""
    errors: list[BaseException | None] = [error]
    while errors:
        if (current := errors.pop()) is not None:
            errors += [current.__cause__, current.__context__]
            if isinstance(current, BaseExceptionGroup):
                errors += current.exceptions
            current.__traceback__ = current.__cause__ = current.__context__ = None


def error_chain(error: BaseException, *, with_context: bool = False) -> Iterator[BaseException]:
    """Yields an error, its cause, the cause of that, and so on. Code can make an error its own cause: each comes once.

    Args:
        with_context: whether an error without a cause is followed by that during whose handling it was raised.
    """
    seen = set[int]()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (current.__context__ if with_context else None)
