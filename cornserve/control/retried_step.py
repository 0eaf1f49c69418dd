"""Steps before an app can start, which are repeated until they end with a result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from cornserve.app_host.errors import AppLoadError, ForkServerError
from cornserve.backoff import backoff_seconds
from cornserve.control.planner import PlannerProcessError
from cornserve.control.profiling_job import ProfilerProcessError
from cornserve.control.store.base import StoreError

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second attempt, and between two later attempts at most."""

_EXPECTED_ERRORS: Final = (AppLoadError, ForkServerError, PlannerProcessError, ProfilerProcessError, StoreError)

Result = TypeVar("Result")


async def retried(
    what: str, attempt: Callable[[], Awaitable[Result]], on_error: Callable[[str, float], object]
) -> Result:
    """Returns the result of the first attempt that raises no error.

    Args:
        what: the app and the step, for the log.
        on_error: called with the text of an error and the seconds until the next attempt.
    """
    failures = 0
    while True:
        try:
            return await attempt()
        except Exception as error:
            failures += 1
            pause = backoff_seconds(failures, first=FIRST_PAUSE, longest=LONGEST_PAUSE)
            is_expected = isinstance(error, _EXPECTED_ERRORS)
            text = str(error) if is_expected else f"{type(error).__name__}: {error}"
            level = logging.WARNING if is_expected else logging.ERROR
            log.log(level, "%s: the next attempt starts in %g s: %s", what, pause, text, exc_info=not is_expected)
            on_error(text, pause)
        await asyncio.sleep(pause)
