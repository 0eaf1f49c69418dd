"""An event loop in a thread, for libraries whose calls would block the event loop of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


class LoopThread:
    """Runs until `stop`. Waits for events without using CPU.

    Args:
        name: the name of the thread in stacks.
    """

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs in the thread, and returns the result or raises the error. Raises `OSError` after `stop`.

        If the caller is cancelled, the work is cancelled, but may end later. It does not begin if it has not yet.
        """
        return await self._run(work, is_awaited=False)

    async def run_to_end(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs work that uses memory of the caller in the thread. See `run`.

        A cancelled caller waits until work that has begun has ended, even if it is cancelled again.
        """
        return await self._run(work, is_awaited=True)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Calls the function in the thread, unless it has ended."""
        if not self._is_stopping:
            self._loop.call_soon_threadsafe(function)

    async def flush(self) -> None:
        """Waits for the functions of `call_soon`."""
        if not self._is_stopping:
            await self._await(asyncio.sleep(0), is_awaited=True)

    async def stop(self) -> None:
        """Waits for all work, and ends the thread."""
        self._is_stopping = True
        await self._await(self._finish(), is_awaited=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)

    async def _run(self, work: Coroutine[Any, Any, Result], *, is_awaited: bool) -> Result:
        if self._is_stopping:
            work.close()
            raise OSError(f"the thread {self._thread.name} has ended")
        return await self._await(work, is_awaited=is_awaited)

    async def _await(self, work: Coroutine[Any, Any, Result], *, is_awaited: bool) -> Result:
        caller = asyncio.get_running_loop()
        ended = asyncio.Event()
        tasks: list[asyncio.Task[Result]] = []
        beginning = threading.Lock()
        """Acquired by `begin`, or by the cancelled caller before it."""

        def begin() -> None:
            if not beginning.acquire(blocking=False):
                work.close()
                return
            task = self._loop.create_task(work)
            task.add_done_callback(end)
            tasks.append(task)

        def end(task: asyncio.Task[Result]) -> None:
            _ = task.cancelled() or task.exception()  # retrieves the error, of which asyncio warns otherwise
            caller.call_soon_threadsafe(ended.set)

        def cancel() -> None:  # runs after `begin`
            tasks[0].cancel()

        self._loop.call_soon_threadsafe(begin)
        is_cancelled = False
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                is_cancelled = True
                if beginning.acquire(blocking=False):
                    raise
                self._loop.call_soon_threadsafe(cancel)
                if not is_awaited:
                    raise
        if is_cancelled:
            raise asyncio.CancelledError
        (task,) = tasks
        return task.result()

    async def _finish(self) -> None:
        """Waits for all other work."""
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()
