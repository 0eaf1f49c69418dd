"""Runs the planning of apps: one task for each app whose newest version needs a plan."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cornserve.app_host.errors import AppLoadError, ForkServerError
from cornserve.backoff import backoff_seconds
from cornserve.control.background_tasks import BackgroundTasks
from cornserve.control.deployment import Deployment
from cornserve.control.initial_plans import InitialPlans
from cornserve.control.planner import PlannerProcessError
from cornserve.control.store.base import StoreError

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second attempt to plan an app, and between two later attempts at most."""

_EXPECTED_ERRORS: Final = (AppLoadError, ForkServerError, PlannerProcessError, StoreError)


@dataclass(frozen=True, slots=True)
class _Run:
    deployment: Deployment
    version: tuple[int, str]
    task: asyncio.Task[None]


class PlanningRuns:
    """Plans the newest version of each app, again and again until the plan is stored or cannot be made.

    Args:
        on_change: called when a deployment has changed.
        on_error: called after a failed attempt.
    """

    def __init__(self, plans: InitialPlans, on_change: Callable[[], None], on_error: Callable[[], None]) -> None:
        self._plans = plans
        self._on_change = on_change
        self._on_error = on_error
        self._runs: dict[str, _Run] = {}
        self._tasks = BackgroundTasks()

    def update(self, deployments: Mapping[str, Deployment]) -> None:
        """Starts the planning of versions that need a plan, and ends that of versions that are not the newest."""
        for name, run in list(self._runs.items()):
            deployment = deployments.get(name)
            if deployment is not run.deployment or not deployment.needs_plan or deployment.version != run.version:
                run.task.cancel()
                del self._runs[name]
        for name, deployment in deployments.items():
            if deployment.needs_plan and name not in self._runs:
                task = self._tasks.start(self._plan(deployment))
                self._runs[name] = _Run(deployment, deployment.version, task)

    async def close(self) -> None:
        """Ends all planning."""
        await self._tasks.close()

    async def _plan(self, deployment: Deployment) -> None:
        record, failures = deployment.record, 0
        while True:
            try:
                failure = await self._plans.make(record)
            except Exception as error:
                failures += 1
                pause = backoff_seconds(failures, first=FIRST_PAUSE, longest=LONGEST_PAUSE)
                is_expected = isinstance(error, _EXPECTED_ERRORS)
                text = str(error) if is_expected else f"{type(error).__name__}: {error}"
                log.error("app %s: planning failed: %s", record.name, text, exc_info=not is_expected)
                self._on_error()
                deployment.delay_planning(record, f"{text}; the next attempt starts after {pause:g} s")
                self._on_change()
                await asyncio.sleep(pause)
            else:
                deployment.end_planning(record, failure)
                self._on_change()
                return
