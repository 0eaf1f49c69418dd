"""Runs and awaits several operations concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gather_all(works: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Returns all results, in order. The first error cancels the others and is raised once they have ended."""
    current = asyncio.current_task()
    assert current is not None
    cancellations = current.cancelling()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        while current.cancelling() > cancellations:  # Python 3.11 does not withdraw those of the task group.
            current.uncancel()
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def run_unless(event: asyncio.Event, work: Awaitable[Any]) -> bool:
    """Runs `work`, and cancels it when `event` is set. Returns whether it completed; raises its error."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        await end_all(working, waiting)


async def end_all(*tasks: asyncio.Future[Any]) -> None:
    """Cancels the tasks, and waits until they have ended, even if the caller is cancelled again meanwhile."""
    is_cancelled = False
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:
            is_cancelled = True
    await asyncio.gather(*tasks, return_exceptions=True)  # retrieves errors, of which asyncio warns otherwise
    if is_cancelled:
        raise asyncio.CancelledError


def raise_if_task_cancelled() -> None:
    """Raises `CancelledError` if the running task has been cancelled.

    In Python 3.11, `asyncio.wait_for` of a library can drop a cancellation: if the awaited work is done at the same
    moment, it returns the result.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Broadcast:
    """Wakes all waiters at each change.

    A waiter that must not miss a change calls `next_change` before it reads the state, and then waits for the
    event.
    """

    def __init__(self) -> None:
        self._next_change = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """Returns an event that the next `notify` sets."""
        return self._next_change

    def notify(self) -> None:
        changed, self._next_change = self._next_change, asyncio.Event()
        changed.set()
