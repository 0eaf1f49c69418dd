"""Runs the planning of apps: one task for each app whose newest version needs a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from cornserve.control.background_tasks import BackgroundTasks
from cornserve.control.deployment import Deployment
from cornserve.control.initial_plans import InitialPlans
from cornserve.control.retried_step import retried
from cornserve.control.store.base import AppRecord


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
        record = deployment.record
        failure = await retried(
            f"app {record.name}: planning",
            partial(self._plans.make, record),
            partial(self._delay, deployment, record),
        )
        deployment.end_planning(record, failure)
        self._on_change()

    def _delay(self, deployment: Deployment, record: AppRecord, error: str, pause: float) -> None:
        self._on_error()
        deployment.delay_planning(record, f"{error}; the next attempt starts after {pause:g} s")
        self._on_change()
