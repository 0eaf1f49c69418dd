"""Waiting for several things at once, with one owner for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def all_of(works: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Their results, in order. The first error ends the others, and is raised when they have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def done_before(event: asyncio.Event, work: Awaitable[Any]) -> bool:
    """Whether `work` was done before the event came, in which case it is cancelled. Raises its error."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
