"""Changes of replicas under load: an instance with echo executors, and its simulation (V5).

A replica starts, fails or is stopped while requests arrive. A request is late if it waits for several others. The time
to recover lasts from the change to the arrival of the last late request before two seconds without any. The simulation
of a run gets the time in which its replica has started, so that both have the same one.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.validation.differences import above, differences
from benchmarks.harness.validation.policies import poisson_arrivals
from benchmarks.harness.validation.simulated import OPTION, ChangeReplicas, SimulatedLoad, simulated_responses
from cornserve.app.spec import AppSource, AppSpec
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, calls
from cornserve_planner.simulation.running_cells import ReplicaGroup
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings

APP = "stages"

SERVICE_SECONDS = 0.05

LATE_SECONDS = 8 * SERVICE_SECONDS

BURST_SECONDS = 0.1
"""The time from a burst to the change."""

QUIET_SECONDS = 2.0
"""After this time without late requests, the app has recovered."""

TOLERANCES = {"recovery": 0.2, "failed": 0.0}

TIMEOUT_SECONDS = 60.0

SOURCE = f"""
from cornserve import App
from cornserve_echo.stages import StageTask

app = App(name={APP!r}, paths=[StageTask(seconds={{"llm": {SERVICE_SECONDS}}})])
"""


@dataclass(frozen=True, slots=True)
class ChangeScenario:
    """
    Args:
        before, after: replicas. If they are equal, one fails and is replaced.
        load: the requests that arrive in the time of one.
        burst: the requests that arrive together before the change, so that the change delays them.
    """

    name: str
    before: int
    after: int
    load: float
    burst: int = 0

    @property
    def is_failure(self) -> bool:
        return self.before == self.after


SCENARIOS = (
    ChangeScenario("failure", 2, 2, 1.6, burst=20),
    ChangeScenario("scale-out", 1, 2, 1.3),
    ChangeScenario("drain", 3, 2, 1.6, burst=40),
)


@dataclass(frozen=True, slots=True)
class ChangeFigures:
    """
    Args:
        recovery: seconds from the change until requests are not late any more; 0 without late requests.
        failed: requests.
        mean: the mean response time after the change, in seconds.
    """

    recovery: float
    failed: int
    mean: float

    @classmethod
    def of(cls, arrivals: Sequence[float], responses: Sequence[float | None], change: float) -> ChangeFigures:
        after = [
            (arrival - change, seconds)
            for arrival, seconds in zip(arrivals, responses, strict=True)
            if arrival > change and seconds is not None
        ]
        recovery = 0.0
        for arrival, seconds in after:
            if arrival > recovery + QUIET_SECONDS:
                break
            if seconds > LATE_SECONDS:
                recovery = arrival
        mean = statistics.fmean(seconds for _, seconds in after)
        return cls(recovery, sum(seconds is None for seconds in responses), mean)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change in simulation and measured.

    Args:
        run: the number of the measurement, from 1.
        startup: seconds until the started replica served.
        differences: those of the simulated figures from the measured ones, relative to them.
        missed: the tolerances that are missed.
    """

    change: str
    run: int
    requests: int
    startup: float
    measured: ChangeFigures
    simulated: ChangeFigures
    differences: dict[str, float]
    missed: list[str]


def compare_changes(
    folder: Path, scenarios: Iterable[ChangeScenario], seconds: float, runs: int
) -> Iterator[ChangeRow]:
    """Yields a row for each run of each scenario.

    Args:
        folder: for the instance. It must not exist.
        seconds: the duration of each load. The change is made after a fifth of it.
    """
    instance = SlotInstance(folder, max(max(each.before, each.after) for each in SCENARIOS))
    with instance.started() as client:
        client.deploy(AppSpec(source=AppSource(inline=SOURCE)), name=APP, timeout=TIMEOUT_SECONDS)
        for scenario in scenarios:
            for run in range(1, runs + 1):
                yield _compare(_ScaledApp(client, folder), scenario, seconds, run)


class _ScaledApp:
    """The replicas of the app."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self._folder = str(folder)

    def endpoints(self) -> frozenset[str]:
        return frozenset(endpoint for group in self.client.app(APP).status.groups for endpoint in group.endpoints)

    def scale(self, replicas: int) -> None:
        """Sets the number of replicas, and waits until they serve."""
        self.client.scale(APP, replicas)
        self.wait(lambda: len(self.endpoints()) == replicas and len(self._processes()) == replicas)

    def change(self, scenario: ChangeScenario) -> float:
        """Changes the replicas. Returns the seconds until a started one serves; 0 without a start."""
        known, started = self.endpoints(), time.monotonic()
        if scenario.is_failure:
            self._processes()[0].kill()
        else:
            self.client.scale(APP, scenario.after)
        if scenario.after < scenario.before:
            return 0.0
        self.wait(lambda: not self.endpoints() <= known)
        return time.monotonic() - started

    @staticmethod
    def wait(is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_true():
            if time.monotonic() > deadline:
                raise RuntimeError("the replicas did not change in time")
            time.sleep(0.05)

    def _processes(self) -> list[psutil.Process]:
        """Returns the processes of the replicas, the oldest first."""
        found = []
        for process in psutil.process_iter(["cmdline", "create_time", "status"]):
            command = process.info["cmdline"] or ()
            if "cornserve_executors.base" in command and any(each.startswith(self._folder) for each in command):
                found.append(process)
        return sorted(found, key=lambda process: process.info["create_time"])


def _compare(app: _ScaledApp, scenario: ChangeScenario, seconds: float, run: int) -> ChangeRow:
    change = seconds / 5
    burst = [change - BURST_SECONDS] * scenario.burst
    arrivals = sorted([*poisson_arrivals(scenario.load / SERVICE_SECONDS, seconds), *burst])
    app.scale(scenario.before)
    responses, startup = asyncio.run(_measure(app, scenario, arrivals, change))
    measured = ChangeFigures.of(arrivals, responses, change)
    simulated = ChangeFigures.of(arrivals, _simulate(scenario, arrivals, change, startup).responses, change)
    found = differences(asdict(simulated), asdict(measured))
    return ChangeRow(
        change=scenario.name,
        run=run,
        requests=len(arrivals),
        startup=startup,
        measured=measured,
        simulated=simulated,
        differences=found,
        missed=above(found, TOLERANCES),
    )


async def _measure(
    app: _ScaledApp, scenario: ChangeScenario, arrivals: Sequence[float], change: float
) -> tuple[list[float | None], float]:
    """Returns the response times, None for requests that have failed, and the seconds until the started replica
    served."""
    loop = asyncio.get_running_loop()
    begin = loop.time() + 0.1
    call = calls.invoke(APP, {"items": {OPTION: 1}}, TIMEOUT_SECONDS)
    samples = [RequestSample(due=arrival, sent=arrival) for arrival in arrivals]

    async def change_replicas() -> float:
        await asyncio.sleep(begin + change - loop.time())
        return await asyncio.to_thread(app.change, scenario)

    async with TimedClient(app.client.address) as timed, asyncio.TaskGroup() as tasks:
        changed = tasks.create_task(change_replicas())
        for sample in samples:
            await asyncio.sleep(begin + sample.due - loop.time())
            tasks.create_task(timed.run(call, sample, lambda: loop.time() - begin))
    return [sample.latency if sample.error is None else None for sample in samples], changed.result()


def _simulate(scenario: ChangeScenario, arrivals: Sequence[float], change: float, startup: float) -> SimulatedLoad:
    def start(simulation: ServingSimulation, cell: str, group: ReplicaGroup) -> None:
        replica = simulation.cells.start_replica(cell, OPTION, group)
        simulation.events.add(simulation.events.now + startup, group.serve, replica)

    def stop(simulation: ServingSimulation, cell: str, group: ReplicaGroup) -> None:
        _ = group.stop_newest(simulation.events.now)

    changed: ChangeReplicas | None = None
    settings = ServingSettings()
    if scenario.is_failure:
        settings = ServingSettings(failures=((OPTION, change),), startup=(startup,))
    else:
        changed = start if scenario.after > scenario.before else stop
    return simulated_responses(
        "least-loaded",
        scenario.before,
        SERVICE_SECONDS,
        arrivals,
        settings,
        None if changed is None else (change, changed),
    )
