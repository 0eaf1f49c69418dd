"""Measures the options of an app, one after the other, each with all replicas that fit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cornserve.app.isolation import isolated_source
from cornserve.app.record import AppSpec
from cornserve.app.settings import ExecutorOverride
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, calls
from cornserve.client.calls import ApiCall
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.state_dir import ReplicaDir
from cornserve.home import Home
from cornserve.profiler.cost_estimate import MeasurementCost
from cornserve.profiler.device import Device, process_memory
from cornserve.profiler.loads import LoadDriver, MeasurementFailedError, Observations
from cornserve.profiler.mix_measurement import Precision, measure_mix
from cornserve.profiler.option_mixes import MeasuredOption, OptionMix
from cornserve.profiler.results import Conditions, MixMeasurement, OptionResults
from cornserve.profiler.store import ProfileStore
from cornserve.profiler.temporary_apps import (
    PREFIX,
    SlowStartError,
    TemporaryApp,
    TemporaryAppError,
    TemporaryApps,
    lasting_apps,
)

STOP_SECONDS = 60.0
MEMORY_SECONDS = 1.0
REQUEST_SECONDS = 600.0


class ProfilingError(Exception):
    """An option cannot be measured. The message is for users."""


class ProfilingInterruptedError(ProfilingError):
    """A measurement has ended early. Another attempt may succeed."""


class SlowOptionError(ProfilingInterruptedError):
    """An option was still starting at the end of the device time.

    Args:
        what: the option and its mix, for users.
    """

    def __init__(self, what: str, reason: SlowStartError) -> None:
        super().__init__(f"{what}: {reason}: give more device time")
        self.what = what


@dataclass(frozen=True, slots=True)
class ProfiledApp:
    """The app whose options are measured."""

    name: str
    spec: AppSpec


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A mix of an option, and its measurement if the store has one that is still valid and narrow enough."""

    option: MeasuredOption
    mix: OptionMix
    cost: MeasurementCost
    found: MixMeasurement | None
    stale: tuple[str, ...] = ()
    """Changes since the option was measured."""


Report = Callable[[MeasuredOption, OptionMix, Observations], object]
"""Shows a running load."""


@dataclass(slots=True)
class Profiler:
    """
    Args:
        half_width: the half width of the throughputs' 95 % confidence intervals, relative to them.
        prefix: the beginning of the names of temporary apps, which a controller removes if this process is killed.
    """

    client: Client
    home: Home
    app: ProfiledApp
    device: Device
    half_width: float
    report: Report
    prefix: str | None = None
    store: ProfileStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = ProfileStore.of(self.home)

    def count_free_slots(self) -> None:
        """Reads which slots are free without the temporary apps of earlier profilers, which `run` deletes."""
        if self.device.slots is not None:
            self.device = self.device.with_free_slots(self.home, lasting_apps(self.client, self.prefix or PREFIX))

    def plan(self, options: Sequence[MeasuredOption]) -> list[WorkItem]:
        """Returns what is measured already, and what has to be measured."""
        return [item for option in options for item in self._plan_option(option)]

    def _plan_option(self, option: MeasuredOption) -> Iterator[WorkItem]:
        results = self.store.read(option.unit.spec, self.device.name)
        stale: list[str] = []
        if results is not None and results.measurements:
            stale = self.device.conditions(option.unit.spec).changes_since(results.conditions)
        standard_error = Precision(self.half_width, 0).standard_error
        for mix in option.mixes:
            found = None if results is None or stale else results.find(mix.mix, mix.digest, standard_error)
            what = f"{option.name} with {mix.description}"
            cost = MeasurementCost.estimate(what, max(1, option.graph.gpus), results)
            yield WorkItem(option, mix, cost, found, tuple(stale))

    def current(self, option: MeasuredOption) -> OptionResults | None:
        """Returns the results of the option for its mixes under the current conditions, or None without any."""
        results = self.store.read(option.unit.spec, self.device.name)
        if results is None or self.device.conditions(option.unit.spec).changes_since(results.conditions):
            return None
        keys = {(mix.mix, mix.digest) for mix in option.mixes}
        found = tuple(m for m in results.measurements if (m.mix, m.requests) in keys)
        return results.model_copy(update={"measurements": found}) if found else None

    def run(self, items: Sequence[WorkItem], budget: float) -> list[WorkItem]:
        """Measures the items, and returns those that the budget did not suffice for.

        Args:
            budget: seconds of device time: the time of a measurement counts once for each GPU or slot of a replica.
        """
        missing = list(items)
        apps = TemporaryApps(self.client, self.prefix)
        with apps.removed_at_the_end():
            while missing and budget > 0:
                item, devices = missing[0], missing[0].cost.devices
                started = time.monotonic()
                self._measure(item, apps, budget / devices, len(missing))
                budget -= (time.monotonic() - started) * devices
                missing.pop(0)
        return missing

    def _measure(self, item: WorkItem, apps: TemporaryApps, seconds: float, items: int) -> None:
        """Measures a mix in its part of the time.

        A start may take longer, up to all of the time: then, the mixes share what is left. The other ones may be
        interrupted, but the next attempt has fewer mixes to measure.

        Args:
            seconds: the time that is left for `items` mixes.
        """
        option, spec = item.option, item.option.unit.spec
        conditions = self.device.conditions(spec)
        started = time.monotonic()
        with self._running(item, apps, seconds) as app:
            left = load_seconds(seconds, items, time.monotonic() - started)
            results = self._stored(option, conditions).with_start(round(app.startup, 3))
            self.store.write(results)
            memory = _Memory(self.home, app)
            measurement = asyncio.run(self._drive(app.name, item, Precision(self.half_width, left), memory))
            self.store.write(results.with_memory(memory.use).with_measurement(measurement))

    def _stored(self, option: MeasuredOption, conditions: Conditions) -> OptionResults:
        results = self.store.read(option.unit.spec, self.device.name)
        if results is not None and not conditions.changes_since(results.conditions):
            return results
        return OptionResults(
            task=option.graph.task, settings=option.graph.settings, spec=option.unit.spec, conditions=conditions
        )

    @contextmanager
    def _running(self, item: WorkItem, apps: TemporaryApps, seconds: float) -> Iterator[TemporaryApp]:
        name, spec = apps.new_name(), item.option.unit.spec
        app_spec = AppSpec(
            source=isolated_source(name, self.app.name, self.app.spec, item.mix.path, spec.key),
            restart=apps.restart,
            executor_replicas={spec.executor: self._replicas(item)},
            executors=self._pod_settings(spec.executor),
        )
        app: TemporaryApp | None = None
        try:
            app = apps.start(name, app_spec, spec, max(seconds, 1.0))
            yield app
        except SlowStartError as error:
            raise SlowOptionError(item.cost.what, error) from error
        except (TemporaryAppError, MeasurementFailedError) as error:
            if not apps.exists(name):
                raise ProfilingInterruptedError(f"{item.cost.what}: its temporary app {name} was deleted") from error
            raise ProfilingError(f"{item.cost.what}: {error}") from error
        finally:
            apps.delete(name)
            if app is not None:
                self._wait_until_stopped(app)

    def _replicas(self, item: WorkItem) -> int:
        return self.device.replicas(item.option.graph.gpus)

    def _pod_settings(self, executor: str) -> list[ExecutorOverride]:
        """Returns the app's settings of the pods of an executor, on the measured type of slots."""
        named = {each.name: each.pod_template for each in self.app.spec.executors}
        settings = ExecutorOverride(
            name="*", gpu_type=self.device.slot_type, pod_template=named.get(executor) or named.get("*")
        )
        return [] if settings == ExecutorOverride(name="*") else [settings]

    def _wait_until_stopped(self, app: TemporaryApp) -> None:
        """Waits until the replicas have ended, so that the next option has the machine for itself."""
        deadline = time.monotonic() + STOP_SECONDS
        while self.home.replicas.is_dir() and time.monotonic() < deadline:
            if not any(path.name.startswith(f"{app.group.key}-") for path in self.home.replicas.iterdir()):
                return
            time.sleep(0.05)

    async def _drive(self, app: str, item: WorkItem, precision: Precision, memory: _Memory) -> MixMeasurement:
        def on_progress(observations: Observations) -> None:
            memory.observe()
            self.report(item.option, item.mix, observations)

        async with TimedClient(self.client.address) as client:
            driver = LoadDriver(client, _calls(app, item.mix), on_progress, self._replicas(item))
            return await measure_mix(driver, item.mix.mix, item.mix.digest, precision)


def load_seconds(seconds: float, items: int, start: float) -> float:
    """Returns the time for the load of a mix.

    Args:
        seconds: the time for `items` mixes, with their starts.
        start: the time that the start of this mix has taken.
    """
    left = seconds / items - start
    return left if left > 0 else max(0.0, seconds - start) / items


class _Memory:
    """Observes the memory of the replica of a temporary app."""

    def __init__(self, home: Home, app: TemporaryApp) -> None:
        replica = app.group.replicas[0].id
        process = ReplicaDir(home.replicas / ReplicaId(replica)).read_process()
        self._pid = None if process is None else process.process_group.pid
        self.use = None if self._pid is None else process_memory(self._pid)
        self._seen = time.monotonic()

    def observe(self) -> None:
        if self._pid is not None and time.monotonic() > self._seen + MEMORY_SECONDS:
            self.use, self._seen = process_memory(self._pid, self.use), time.monotonic()


def _calls(app: str, mix: OptionMix) -> Iterator[ApiCall]:
    call = calls.invoke(app, {}, REQUEST_SECONDS)
    for body in mix.requests():
        yield replace(call, body=body)
