"""Ends work in threads after its caller is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import TypeVar

Result = TypeVar("Result")

_cancelled: ContextVar[threading.Event] = ContextVar("cancelled")


def run_cancellable(work: Callable[[], Result], cancelled: threading.Event) -> Result:
    """Runs `work`, in which `raise_if_cancelled` raises once `cancelled` is set."""
    token = _cancelled.set(cancelled)
    try:
        return work()
    except CancelledError as error:
        # The traceback would keep the memory of the work for as long as the caller keeps the error.
        raise error.with_traceback(None) from None
    finally:
        _cancelled.reset(token)


def raise_if_cancelled() -> None:
    """Raises `CancelledError` if the caller of this work is cancelled. Long work calls it at least once a second."""
    cancelled = _cancelled.get(None)
    if cancelled is not None and cancelled.is_set():
        raise CancelledError
