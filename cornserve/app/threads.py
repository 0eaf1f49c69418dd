"""Apps' code, which may take as long as it likes to import, in threads of its own."""

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
    """As `asyncio.to_thread`, but code that never returns takes no thread of a pool, and keeps no process from ending.

    A caller that is cancelled leaves the thread alone; what comes of it is dropped. Code that exits, which would end
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

    def settle(how: Callable[..., None], what: object) -> None:
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(lambda: None if outcome.done() else how(what))

    threading.Thread(target=run, name=f"app {function.__qualname__}", daemon=True).start()
    return await outcome
