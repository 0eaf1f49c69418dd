"""Runs functions that may never return, such as the code of apps, in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from cornserve.task.errors import DefinitionError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


async def run_in_daemon_thread(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Like `asyncio.to_thread`, but a function that never returns blocks neither a thread pool nor the process's exit.

    When the caller is cancelled, the thread continues and its result is dropped. A function that exits, which would end
    the process with all other apps, raises a `DefinitionError`.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            settle(outcome.set_exception, error)
        except BaseException as error:
            settle(outcome.set_exception, DefinitionError(f"the app exits when it is loaded: {error!r}"))
        else:
            settle(outcome.set_result, result)

    def settle(set_outcome: Callable[..., None], value: object) -> None:
        with suppress(RuntimeError):  # The event loop is closed.
            loop.call_soon_threadsafe(lambda: None if outcome.done() else set_outcome(value))

    name = getattr(function, "__qualname__", type(function).__name__)  # A partial has no name.
    threading.Thread(target=run, name=f"app {name}", daemon=True).start()
    return await outcome
