"""Measures the options of apps that need a profile, one app at a time, in another process."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cornserve.app.planning import AppProfile
from cornserve.app.record import FailureReason, PlanningStep
from cornserve.app.spec import AppSpec
from cornserve.control.background_tasks import BackgroundTasks
from cornserve.control.deployment_failure import Failure
from cornserve.control.preparation import Preparation, PreparationJobs, retried
from cornserve.control.profiling.job import (
    ProfilerProcessError,
    ProfilingJob,
    ProfilingMessage,
    RunProfiler,
    run_of_temporary_app,
)
from cornserve.control.spec_change import change_spec
from cornserve.control.store.base import (
    APPS,
    AppRecord,
    FieldConflictError,
    NotFoundError,
    RecordRejectedError,
    RecordTooLargeError,
    Store,
    StoreError,
)
from cornserve.durations import describe_duration

log = logging.getLogger(__name__)

MAX_SLOW_STARTS: Final = 3
"""The attempts to start an option. Each takes all of the device time."""

REMOVE_SECONDS: Final = 1.0
"""The least time between two deletions of the same temporary app."""

WAITING: Final = "waits for the measurements of another app"
WAITING_FOR_PREVIOUS: Final = "waits until the measurements of the previous version have ended"


@dataclass(slots=True)
class _Measurements:
    """The measurements of one app.

    Args:
        record: the newest record of the app with this job.
        is_checked: whether the inputs can be used.
        interruption: why the last process has ended early.
        slow_starts: the starts that have taken all of the time, by option.
    """

    record: AppRecord
    job: ProfilingJob
    state: Preparation = field(default_factory=lambda: Preparation("", PlanningStep.PROFILING))
    is_checked: bool = False
    interruption: str = ""
    slow_starts: Counter[str] = field(default_factory=Counter)

    @property
    def starting(self) -> str:
        """The progress until the process reports its own."""
        return f"starts, for at most {describe_duration(self.job.seconds)} of device time"


class ProfilingRuns:
    """Stores each measured profile in the spec, as a new generation. The plan is then made from it.

    Args:
        store: the store of the specs as users have written them.
        run: starts the process that measures.
        find_refusal: returns why an app cannot be measured, or an empty text. It does not wait for other measurements.
        on_change: called when the state of an app has changed.
    """

    def __init__(
        self,
        store: Store,
        run: RunProfiler,
        find_refusal: Callable[[AppRecord], Awaitable[str]],
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._run_process = run
        self._find_refusal = find_refusal
        self._on_change = on_change
        self._apps: dict[str, _Measurements] = {}
        self._lock = asyncio.Lock()
        """Measurements would disturb each other."""
        self._measured = ""
        """The name of the app that is measured while `_lock` is locked."""
        self._removed: set[str] = set()
        self._jobs = PreparationJobs[ProfilingJob](self._measure)
        self._removals = BackgroundTasks()

    async def close(self) -> None:
        """Ends the running process; its finished measurements are kept."""
        await self._jobs.close()
        await self._removals.close()

    def state(self, app: str) -> Preparation | None:
        """Returns the state of an app that needs a profile."""
        found = self._apps.get(app)
        return None if found is None else found.state

    def update(self, wanted: Mapping[str, AppRecord], apps: Iterable[str], failed: Collection[str] = ()) -> None:
        """Starts the measurements of these apps, and ends those of all others.

        Args:
            wanted: the apps that need a profile.
            apps: the names of all apps. Temporary apps of ended measurements are deleted.
            failed: see `PreparationJobs.update`.
        """
        jobs = {name: _job(record) for name, record in wanted.items()}
        for name, app in self._apps.items():
            if app.state.failure is not None and name in wanted and wanted[name].generation != app.record.generation:
                self._jobs.forget(name)  # A new generation is measured again.
        for name in self._jobs.update(jobs, failed):
            self._apps[name] = found = _Measurements(wanted[name], jobs[name])
            found.state.message = _message(self._first_step(found))
        for name in self._apps.keys() - wanted.keys():
            del self._apps[name]
        for name, app in self._apps.items():
            app.record = wanted[name]
        running = {job.run for job in jobs.values()}
        for name in apps:
            run = run_of_temporary_app(name)
            if run is not None and run not in running and name not in self._removed:
                self._removed.add(name)
                self._removals.start(self._remove(name))

    async def _remove(self, name: str) -> None:
        """Deletes a temporary app whose process could not delete it."""
        try:
            with suppress(NotFoundError):
                await self._store.delete(APPS, name)
                log.info("deleted the temporary app %s of measurements that have ended", name)
        except StoreError as error:
            log.warning("cannot delete the temporary app %s: %s", name, error)
        await asyncio.sleep(REMOVE_SECONDS)
        self._removed.discard(name)
        self._on_change()

    def _first_step(self, app: _Measurements) -> str:
        """Returns the progress of an app before its process starts."""
        if not self._lock.locked():
            return app.starting
        waiting = WAITING_FOR_PREVIOUS if self._measured == app.job.app else WAITING
        return f"{waiting}; the last attempt was interrupted: {app.interruption}" if app.interruption else waiting

    async def _measure(self, name: str) -> None:
        """Starts processes until one of them ends with a result."""
        app, what = self._apps[name], f"app {name}: the measurements are interrupted"
        if refusal := await retried(what, partial(self._attempt, app), partial(self._pause, app)):
            app.state.failure = Failure(FailureReason.PROFILING_FAILED, refusal)
        self._on_change()

    async def _attempt(self, app: _Measurements) -> str:
        """Runs one process. Returns the reason for users if the app cannot be measured."""
        self._show(app.state, self._first_step(app))
        if not app.is_checked:
            if refusal := await self._find_refusal(app.record):
                return refusal
            app.is_checked = True
        async with self._lock:
            self._measured = app.job.app
            self._show(app.state, app.starting)
            try:
                result = await self._result(app.job, app.state)
            except ProfilerProcessError as error:
                app.slow_starts[error.slow_start] += 1
                if error.slow_start and app.slow_starts[error.slow_start] == MAX_SLOW_STARTS:
                    return f"{error}; it was started {MAX_SLOW_STARTS} times"
                raise
            return result.error or await self._store_profile(app, result)

    def _pause(self, app: _Measurements, error: str, pause: float) -> None:
        app.interruption = error
        self._show(app.state, f"measured again in {pause:g} s: {error}")

    async def _result(self, job: ProfilingJob, state: Preparation) -> ProfilingMessage:
        limit = asyncio.timeout(job.limit_seconds)
        try:
            async with limit, aclosing(self._run_process(job)) as messages:
                async for message in messages:
                    if message.progress:
                        self._show(state, message.progress)
                    if message.interruption:
                        raise ProfilerProcessError(message.interruption, slow_start=message.slow_start)
                    if message.error or message.profile is not None:
                        return message
        except TimeoutError:
            if not limit.expired():
                raise
            raise ProfilerProcessError(f"the profiler has not ended after {job.limit_seconds} s") from None
        raise ProfilerProcessError("the profiler has ended without a profile")

    def _show(self, state: Preparation, progress: str) -> None:
        if state.message != _message(progress):
            state.message = _message(progress)
            self._on_change()

    async def _store_profile(self, app: _Measurements, message: ProfilingMessage) -> str:
        """Stores the profile. A newer generation starts with the results that are kept."""
        assert message.profile is not None
        name, digest = app.job.app, app.record.spec.profile_digest
        measured = AppProfile(profile=message.profile, gpu_type=message.gpu_type, measured_from=digest)
        try:
            if await change_spec(self._store, app.record, measured=measured):
                log.info("app %s: its options are measured", name)
            elif self._apps.get(name) is app:
                self._jobs.forget(name)
        except (FieldConflictError, RecordRejectedError, RecordTooLargeError) as error:
            return str(error)
        return ""


def _message(progress: str) -> str:
    return f"profiling: {progress}"


def _job(record: AppRecord) -> ProfilingJob:
    """Returns the job, without what does not affect measurements: other policies, for example, do not end them."""
    planning, unused = record.spec.planning, ("plan", "planning", "measured", "policies", "rollout", "restart")
    assert planning is not None
    return ProfilingJob(
        app=record.name,
        uid=record.uid,
        spec=AppSpec(**{name: getattr(record.spec, name) for name in record.spec.model_fields_set.difference(unused)}),
        workload=planning.workload,
        gpus=planning.gpus,
        gpus_of=planning.gpus_of or {},
        gpu_types=planning.gpu_types,
        seconds=planning.profiling_seconds,
    )
