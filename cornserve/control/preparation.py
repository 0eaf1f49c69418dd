"""Preparations of apps, before their executors start: measurements, plans, and the loading of their code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from cornserve.app.record import PlanningStep
from cornserve.app_host.errors import AppLoadError, ForkServerError
from cornserve.backoff import backoff_seconds
from cornserve.control.background_tasks import BackgroundTasks
from cornserve.control.deployment_failure import Failure
from cornserve.control.store.base import StoreError
from cornserve.exception_text import exception_text

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second attempt, and between two later attempts at most."""


class AttemptError(Exception):
    """An attempt has failed. Another one may succeed."""


_EXPECTED_ERRORS: Final = (AppLoadError, AttemptError, ForkServerError, StoreError)

Result = TypeVar("Result")
Job = TypeVar("Job")


@dataclass(slots=True)
class Preparation:
    """The state of a preparation.

    Args:
        message: the current activity, or the error of the last attempt, for users.
        step: None while the code is loaded.
        failure: the reason why the app cannot be prepared.
    """

    message: str
    step: PlanningStep | None = None
    failure: Failure | None = None


class PreparationJobs(Generic[Job]):
    """Runs one job for each app, and ends the jobs that are not wanted any more.

    Args:
        run: runs a job of an app until it has a result.
    """

    def __init__(self, run: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._run = run
        self._jobs: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._tasks = BackgroundTasks()

    def update(self, wanted: Mapping[str, Job], failed: Collection[str]) -> list[str]:
        """Starts these jobs, by app, and ends those that differ. A job that has ended does not start again.

        Returns the apps whose jobs start, when this method has returned.

        Args:
            failed: the apps whose jobs do not start, because they have failed in another controller.
        """
        for name, (job, task) in list(self._jobs.items()):
            if wanted.get(name) != job:
                task.cancel()
                del self._jobs[name]
        new = [name for name in wanted if name not in self._jobs and name not in failed]
        for name in new:
            self._jobs[name] = wanted[name], self._tasks.start(self._run(name))
        return new

    def forget(self, name: str) -> None:
        """Lets the job of an app start again with the next update."""
        self._jobs.pop(name, None)

    async def close(self) -> None:
        """Ends all jobs."""
        await self._tasks.close()


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
            text = str(error) if is_expected else exception_text(error)
            level = logging.WARNING if is_expected else logging.ERROR
            log.log(level, "%s: the next attempt starts in %g s: %s", what, pause, text, exc_info=not is_expected)
            on_error(text, pause)
        await asyncio.sleep(pause)
