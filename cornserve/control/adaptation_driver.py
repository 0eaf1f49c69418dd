"""Adapts apps to their load: reads arrivals from the gateways, decides, and changes the running cells of plans."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from cornserve.app.adaptation import AdaptationStatus
from cornserve.app.plan import AppPlan, describe_cells
from cornserve.app.record import Phase
from cornserve.control.adapted_app import AdaptedApp
from cornserve.control.app_observer import AppObserver
from cornserve.control.arrival_reader import ArrivalReader
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import APPS, AppRecord, ConflictError, NotFoundError, Store, StoreError
from cornserve.observe.error_log import ErrorLog
from cornserve_policies.adaptation import MixtureChange

log = logging.getLogger(__name__)

LONGEST_INTERVAL: Final = 5.0
"""Seconds between two rounds, if no app has short windows."""

ROUNDS_PER_WINDOW: Final = 4

FitsApp = Callable[[str, AppPlan], bool]
"""Returns whether there are slots for all cells of a plan of the app."""


class AdaptationDriver:
    """Adapts the apps whose settings switch it on. Without such apps, it does nothing.

    Args:
        store: receives the changed specs. Its records have the specs as users have written them.
        fits: whether a plan of an app fits.
        on_change: called when the status of an app has changed.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        store: Store,
        reader: ArrivalReader,
        fits: FitsApp,
        metrics: ControllerMetrics,
        observer: AppObserver | None,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._reader = reader
        self._fits = fits
        self._metrics = metrics
        self._observer = observer
        self._on_change = on_change
        self._clock = clock
        self._apps: dict[str, AdaptedApp] = {}
        self._wanted = asyncio.Event()
        self._errors = ErrorLog(log, "cannot adapt an app: %s")

    def status(self, app: str) -> AdaptationStatus | None:
        """Returns the published state of an app, or None if there is nothing to publish."""
        found = self._apps.get(app)
        return None if found is None or found.status == AdaptationStatus() else found.status

    def update(self, records: Mapping[str, AppRecord]) -> None:
        """Follows the records of all apps."""
        now = self._clock()
        for name in self._apps.keys() - records.keys():
            self._remove(name)
        for name, record in records.items():
            settings, plan = record.spec.policies.adaptation, record.spec.plan
            known = self._apps.get(name)
            if settings is None or plan is None:
                self._remove(name)
            elif known is None or (known.record.uid, known.settings) != (record.uid, settings):
                self._apps[name] = AdaptedApp(record, plan, settings, now)
                self._wanted.set()
            elif known.record is not record:
                known.update(record, plan, now)

    def _remove(self, name: str) -> None:
        if self._apps.pop(name, None) is not None:
            self._metrics.set_rates(name, {})

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
            await self._reader.close()

    @property
    def _interval(self) -> float:
        windows = [app.settings.window_seconds / ROUNDS_PER_WINDOW for app in self._apps.values()]
        return min([LONGEST_INTERVAL, *windows])

    async def step(self) -> None:
        """Reads the arrivals once, and adapts the apps."""
        observed = await self._reader.read(self._clock())
        now = self._clock()  # A busy gateway responds late.
        for name, app in list(self._apps.items()):
            before = app.status
            app.arrivals.add(observed.apps.get(name, {}), now, is_complete=observed.is_complete)
            self._metrics.set_rates(name, app.rates(now))
            app.update_mix_shift(now)
            change = app.decide(now, partial(self._fits, name)) if _serves(app.record) else None
            if app.settings.approval:
                app.propose(change, now)
            elif change is not None:
                await self._apply(app, change)
            if app.status != before:
                await self._report(app, before)
                self._on_change()

    async def _apply(self, app: AdaptedApp, change: MixtureChange) -> None:
        """Changes the app's spec, unless someone else has changed it."""
        name, generation = app.record.name, app.record.generation
        plan = app.plan.with_counts(change.counts, change.rate)
        try:
            record = await self._store.get(APPS, name)
            if (record.uid, record.generation) != (app.record.uid, generation):
                return  # The watch delivers the newer generation.
            spec = record.spec.model_copy(update={"plan": plan})
            await self._store.update_spec(APPS, name, spec, record.version)
        except (ConflictError, NotFoundError):
            return
        except StoreError as error:
            self._errors.report(f"{name}: {error}")
            self._metrics.count_error()
            return
        self._errors.clear()
        self._metrics.count_adaptation(name)
        message = f"{change.reason}: runs {_describe(plan)} instead of {_describe(app.plan)}"
        log.info("app %s: %s", name, message)
        if self._observer is not None:
            await self._observer.on_adaptation(app.record, "Adapted", message)

    async def _report(self, app: AdaptedApp, before: AdaptationStatus) -> None:
        """Logs a new proposal and a new shift of the mix, and reports them as events."""
        name, status = app.record.name, app.status
        news: dict[str, str] = {}
        if status.proposal is not None and before.proposal is None:
            cells = _describe(app.plan.with_counts(status.proposal.counts, status.proposal.target))
            news["AdaptationProposed"] = f"{status.proposal.reason}: {cells} wait for an approval"
        if status.mix_shift is not None and before.mix_shift is None:
            news["MixShifted"] = f"{status.mix_shift.distance:.0%} of the requests have another type than planned"
        for reason, message in news.items():
            log.info("app %s: %s", name, message)
            if self._observer is not None:
                await self._observer.on_adaptation(app.record, reason, message)


def _serves(record: AppRecord) -> bool:
    """Returns whether the newest generation serves. Otherwise, an earlier change is not complete."""
    return record.status.phase is Phase.SERVING and record.status.generation == record.generation


def _describe(plan: AppPlan) -> str:
    """Returns the running cells for users, such as `2 × 4 GPUs, 1 × 1 GPU (9 GPUs, 21 requests/s)`."""
    return f"{describe_cells(plan.counts)} ({plan.gpus} GPUs, {plan.rate:.4g} requests/s)"
