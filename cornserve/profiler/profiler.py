"""Measures the options of an app, one after the other, each with all replicas that fit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby

from cornserve.app.record import EngineTokens
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, ClientError, calls
from cornserve.client.calls import ApiCall
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.state_dir import ReplicaDir
from cornserve.home import Home
from cornserve.profiler.cost_estimate import MeasurementCost
from cornserve.profiler.device import Device, process_memory
from cornserve.profiler.errors import ProfilingError
from cornserve.profiler.loads import LoadDriver, MeasurementFailedError, Observations
from cornserve.profiler.memory_need import MemoryNeed
from cornserve.profiler.mix_measurement import Precision, measure_mix
from cornserve.profiler.option_mixes import MeasuredOption, OptionMix
from cornserve.profiler.progress import ProfilingProgress, Report
from cornserve.profiler.remaining_time import RemainingTime
from cornserve.profiler.results import MeasuredTokens, MixMeasurement, OptionResults
from cornserve.profiler.running_option import ProfiledApp, RunningOption
from cornserve.profiler.store import ProfileStore
from cornserve.profiler.temporary_apps import (
    PREFIX,
    SlowStartError,
    TemporaryApp,
    TemporaryAppError,
    TemporaryApps,
    lasting_apps,
)

MEMORY_SECONDS = 1.0
REQUEST_SECONDS = 600.0


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
class WorkItem:
    """A mix of an option, and its measurement if the store has one that is still valid and narrow enough."""

    option: MeasuredOption
    mix: OptionMix
    cost: MeasurementCost
    found: MixMeasurement | None
    stale: tuple[str, ...] = ()
    """Changes since the option was measured."""

    @property
    def what(self) -> str:
        """The option and the mix, for users."""
        return f"{self.option.name} with {self.mix.description}"


@dataclass(frozen=True, slots=True)
class MeasuredReplicas:
    """The replicas of an option that are measured together.

    Args:
        memory: the bytes that they and their sources take of this machine's memory; None if they run elsewhere.
    """

    count: int
    memory: int | None


@dataclass(slots=True)
class Profiler:
    """
    Args:
        prefix: the beginning of the names of temporary apps, which a controller removes if this process is killed.
    """

    client: Client
    home: Home
    app: ProfiledApp
    device: Device
    precision: Precision
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
        for mix in option.mixes:
            found = (
                None if results is None or stale else results.find(mix.mix, mix.digest, self.precision.standard_error)
            )
            cost = MeasurementCost.estimate(option.name, max(1, option.graph.gpus), results)
            yield WorkItem(option, mix, cost, found, tuple(stale))

    def replicas(self, option: MeasuredOption) -> MeasuredReplicas:
        """Returns the replicas that are measured together: those that fit the free slots and the memory.

        Raises `NotEnoughMemoryError` if one does not fit the memory.
        """
        most = self.device.replicas(option.graph.gpus)
        if not self.device.uses_memory:
            return MeasuredReplicas(most, None)
        earlier = self.store.read(option.unit.spec, self.device.name)
        need = MemoryNeed.of(option.name, option.unit.spec, option.sources, earlier)
        count = need.replicas(most)
        return MeasuredReplicas(count, need.total_bytes(count))

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
        progress = ProfilingProgress(RemainingTime.of([item.cost for item in items], budget), self.report)
        with apps.removed_at_the_end():
            for _, mixes in groupby(items, key=lambda item: item.option.name):
                if progress.remaining.budget <= 0:
                    break
                measured = sorted(mixes, key=lambda item: item.mix.path)
                self._measure(measured, apps, progress)
                missing = [item for item in missing if item not in measured]
        return missing

    def _measure(self, items: Sequence[WorkItem], apps: TemporaryApps, progress: ProfilingProgress) -> None:
        """Measures mixes of one option, whose replicas keep running until the end."""
        option = items[0].option
        replicas = self.replicas(option).count
        running = RunningOption(self.app, self.device, apps, option.unit.spec, replicas)
        try:
            memory = self._start(items[0], running, progress)
            for item in items:
                with self._named_errors(item, running):
                    app = running.serve(item.mix.path, progress.remaining.start_limit)
                    before = self._engines(app)
                    measurement = asyncio.run(self._drive(app.name, item, replicas, memory, progress))
                    tokens = measured_tokens(before, self._engines(app))
                    measurement = measurement.model_copy(update={"tokens": tokens})
                self.store.write(self._stored(option).with_memory(memory.use).with_measurement(measurement))
                progress.end_step()
        finally:
            running.stop(self.home)

    def _engines(self, app: TemporaryApp) -> list[EngineTokens]:
        """Returns the tokens of the engines of the option, or an empty list if the gateway does not report them."""
        replicas = {replica.id for replica in app.group.replicas}
        try:
            engines = self.client.engines(app.name)
        except ClientError:  # Requests to the app will show why.
            return []
        return [engine for replica, engine in engines.items() if replica in replicas]

    def _start(self, item: WorkItem, running: RunningOption, progress: ProfilingProgress) -> _Memory:
        """Starts the replicas of an option. Returns their memory."""
        progress.show(f"{item.option.name} starts")
        with self._named_errors(item, running):
            app = running.serve(item.mix.path, progress.remaining.start_limit)
        self.store.write(self._stored(item.option).with_start(round(app.startup, 3)))
        progress.end_step()
        return _Memory(self.home, app)

    def _stored(self, option: MeasuredOption) -> OptionResults:
        """Returns the results of the option under the current conditions, which may be empty."""
        conditions = self.device.conditions(option.unit.spec)
        results = self.store.read(option.unit.spec, self.device.name)
        if results is not None and not conditions.changes_since(results.conditions):
            return results
        return OptionResults(
            task=option.graph.task, settings=option.graph.settings, spec=option.unit.spec, conditions=conditions
        )

    @contextmanager
    def _named_errors(self, item: WorkItem, running: RunningOption) -> Iterator[None]:
        """Raises a `ProfilingError` that names the mix for an error of a temporary app or of its requests."""
        try:
            yield
        except SlowStartError as error:
            raise SlowOptionError(item.what, error) from error
        except (TemporaryAppError, MeasurementFailedError) as error:
            if name := running.deleted_app:
                raise ProfilingInterruptedError(f"{item.what}: its temporary app {name} was deleted") from error
            raise ProfilingError(f"{item.what}: {error}") from error

    async def _drive(
        self,
        app: str,
        item: WorkItem,
        replicas: int,
        memory: _Memory,
        progress: ProfilingProgress,
    ) -> MixMeasurement:
        def on_progress(observations: Observations) -> None:
            memory.observe()
            progress.show(item.what, describe_load(observations))

        async with TimedClient(self.client.address) as client:
            driver = LoadDriver(client, _calls(app, item.mix), on_progress, replicas)
            seconds = progress.load_limit
            return await measure_mix(driver, item.mix.mix, item.mix.digest, self.precision, seconds)


def measured_tokens(before: Sequence[EngineTokens], after: Sequence[EngineTokens]) -> MeasuredTokens | None:
    """Returns the mean tokens of the requests between two times. None without an engine, or without tokens."""
    if not after or len(before) != len(after):
        return None
    requests, prompt, generated = (
        sum(getattr(each, name) for each in after) - sum(getattr(each, name) for each in before)
        for name in ("requests", "prompt_tokens", "generated_tokens")
    )
    limits, names = after[0], ("cache_tokens", "block_size", "max_num_seqs", "max_num_batched_tokens")
    if min(requests, prompt, generated, *(getattr(limits, name) for name in names)) <= 0:
        return None
    return MeasuredTokens(
        prompt=prompt / requests, generated=generated / requests, **{name: getattr(limits, name) for name in names}
    )


def describe_load(observations: Observations) -> str:
    """Returns the progress of a running load, for users."""
    estimate = observations.throughput()
    rate = "" if estimate is None else f": {estimate.rate:.4g} requests/s ± {estimate.half_width:.1%}"
    return f"{rate} ({len(observations.ends)} requests in {observations.now():.0f} s)"


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
