"""Adapts apps to their load: reads arrivals from the gateways, decides, and changes running cells or replicas."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from cornserve.app.adaptation_status import AdaptationStatus
from cornserve.app.plan import AppPlan
from cornserve.app.record import Phase
from cornserve.app.settings import AdaptationSettings, AutoscalingSettings
from cornserve.control.adaptation.app_adaptation import AppAdaptation, SpecChange
from cornserve.control.adaptation.arrival_reader import ArrivalReader, Arrivals
from cornserve.control.adaptation.cell_adaptation import CellAdaptation
from cornserve.control.adaptation.replanning import Replanning
from cornserve.control.adaptation.replica_autoscaling import ReplicaAutoscaling
from cornserve.control.app_observer import AppObserver
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.spec_change import change_spec
from cornserve.control.store.base import AppRecord, Store, StoreError
from cornserve.observe.error_log import ErrorLog
from cornserve_policies.adaptation import DECISION_SECONDS

log = logging.getLogger(__name__)

ROUNDS_PER_WINDOW: Final = 4

FindAppObstacle = Callable[[str, AppPlan, AppPlan], str | None]
"""Returns why a plan cannot replace the one of an app, for users, or None. Until it serves, the cells of the second
plan run."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AdaptationDriver:
    """Observes the apps with a plan, and adapts the apps whose settings switch it on.

    Without such apps, it does nothing. An error in one app does not affect the others.

    Args:
        store: receives the changed specs. Its records have the specs as users have written them.
        find_obstacle: returns why a plan cannot replace the one of an app.
        most_gpus: returns the GPUs or slots that another plan of an app may have at most.
        replanning: makes plans for mixes that have shifted.
        on_change: called when the status of an app has changed.
        clock: returns the time in seconds.
        wall_clock: returns the time of day.
    """

    def __init__(
        self,
        store: Store,
        reader: ArrivalReader,
        find_obstacle: FindAppObstacle,
        most_gpus: Callable[[str], float],
        metrics: ControllerMetrics,
        observer: AppObserver | None,
        on_change: Callable[[], None],
        replanning: Replanning,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._store = store
        self._reader = reader
        self._find_obstacle = find_obstacle
        self._most_gpus = most_gpus
        self._metrics = metrics
        self._observer = observer
        self._on_change = on_change
        self._replanning = replanning
        self._clock = clock
        self._wall_clock = wall_clock
        self._apps: dict[str, AppAdaptation] = {}
        self._wanted = asyncio.Event()
        self._errors = ErrorLog(log, "cannot adapt an app: %s")

    def status(self, app: str) -> AdaptationStatus | None:
        """Returns the published state of an app, or None if there is nothing to publish."""
        found = self._apps.get(app)
        return None if found is None or found.status == AdaptationStatus() else found.status

    def update(self, records: Mapping[str, AppRecord]) -> None:
        """Follows the records of all apps, by which they adapt."""
        now = self._clock()
        for name in self._apps.keys() - records.keys():
            self._remove(name)
        for name, record in records.items():
            settings, known = _settings(record), self._apps.get(name)
            if settings is None:
                self._remove(name)
            elif known is None or (known.record.uid, known.settings) != (record.uid, settings):
                self._remove(name)
                self._apps[name] = self._followed(record, settings, now)
                self._wanted.set()
            elif known.record != record:
                known.update(record, now)

    def _followed(
        self, record: AppRecord, settings: AdaptationSettings | AutoscalingSettings, now: float
    ) -> AppAdaptation:
        if isinstance(settings, AutoscalingSettings):
            return ReplicaAutoscaling(record, settings, now)
        assert record.spec.plan is not None
        find_obstacle, most_gpus = partial(self._find_obstacle, record.name), partial(self._most_gpus, record.name)
        return CellAdaptation(record, record.spec.plan, settings, find_obstacle, most_gpus, self._replanning.step, now)

    def _remove(self, name: str) -> None:
        if self._apps.pop(name, None) is not None:
            self._metrics.forget_loads(name)
            self._replanning.forget(name)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                if not self._apps:
                    self._wanted.clear()
                    self._reader.forget()
                    await self._wanted.wait()
                await asyncio.sleep(self._interval)
                try:
                    await self.step()
                except Exception:
                    log.exception("adapting the apps failed; the next attempt follows")
                    self._metrics.count_error()
        finally:
            await self._replanning.close()
            await self._reader.close()

    @property
    def _interval(self) -> float:
        windows = [app.settings.window_seconds / ROUNDS_PER_WINDOW for app in self._apps.values()]
        return min([DECISION_SECONDS, *windows])

    async def step(self) -> None:
        """Reads the arrivals once, and adapts the apps."""
        observed = await self._reader.read(self._clock())
        now = self._clock()  # A busy gateway responds late.
        for name, app in list(self._apps.items()):
            if self._apps.get(name) is not app:
                continue  # It was removed while another app changed.
            try:
                await self._adapt(app, observed, now)
            except Exception:
                log.exception("adapting the app %s failed; the next attempt follows", name)
                self._metrics.count_error()

    async def _adapt(self, app: AppAdaptation, observed: Arrivals, now: float) -> None:
        before = app.status
        app.observe(observed, now)
        app.publish(self._metrics, now)
        is_held = app.record.spec.is_held(self._wall_clock())
        change = app.next_change(now, may_change=_may_change(app.record) and not is_held)
        if change is not None:
            await self._apply(app.record, change)
        if app.status != before:
            for reason, message in app.news(before):
                await self._report(app.record, reason, message)
            self._on_change()

    async def _apply(self, app: AppRecord, change: SpecChange) -> None:
        """Changes the app's spec, unless someone else has changed it."""
        try:
            if not await change_spec(self._store, app, **change.fields):
                return
        except StoreError as error:
            self._errors.report(f"{app.name}: {error}")
            self._metrics.count_error()
            return
        self._errors.clear()
        self._metrics.count_adaptation(app.name)
        await self._report(app, "Adapted", change.message)

    async def _report(self, app: AppRecord, reason: str, message: str) -> None:
        """Logs what has happened to an app, and reports it as an event."""
        log.info("app %s: %s", app.name, message)
        if self._observer is not None:
            await self._observer.on_adaptation(app, reason, message)


def _may_change(record: AppRecord) -> bool:
    """Returns whether the app follows its load, and the newest generation serves: earlier changes are complete."""
    is_followed = record.spec.hold_seconds is not None
    return is_followed and record.status.phase is Phase.SERVING and record.status.generation == record.generation


def _settings(record: AppRecord) -> AdaptationSettings | AutoscalingSettings | None:
    """Returns the settings by which the load of the app is observed. Only that of an app without a plan may not be."""
    policies = record.spec.policies
    if record.spec.plan is None or policies.autoscaling is not None:
        return policies.autoscaling
    return policies.adaptation or AdaptationSettings()
