"""Profiles an app, plans each strategy, deploys the plans and measures them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.strategies.workloads import Paths, StrategyWorkload
from cornserve.app.plan import AppPlan
from cornserve.bench.percentiles import percentile
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, calls
from cornserve.client.calls import ApiCall
from cornserve.profiler.loads import LoadDriver, Observations
from cornserve_plan.plan import Plan
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.profiles.profile import ModelProfile

POISSON_UTILIZATION = 0.8

DEPLOY_SECONDS = 300.0

WARM_UP_SECONDS = 5.0
"""The start of each run with many requests in flight, which is not measured: the first tensors of new executors take
longer, and are then followed by a burst."""

MIN_ROUNDS = 3
"""The smallest number of completions of a run, relative to the requests in flight. A run takes longer if needed."""


@dataclass(frozen=True, slots=True)
class DeployedStrategy:
    """A deployed plan.

    Args:
        replicas: the plan's replicas, by option.
        predicted: the plan's requests per second at saturation.
        measured: requests per second of each run with many requests in flight.
        p50, p99: latencies in milliseconds with Poisson arrivals at 80 % of the predicted rate.
    """

    workload: str
    strategy: str
    replicas: dict[str, int]
    predicted: float
    measured: list[float]
    p50: float
    p99: float

    @property
    def error(self) -> float:
        """The difference of the mean measured rate from the predicted rate, relative to the latter."""
        return sum(self.measured) / len(self.measured) / self.predicted - 1


@dataclass(frozen=True, slots=True)
class PlannerInputs:
    """Inputs of the planner. `app` and `workload`: files."""

    app: Path
    model: ModelDocument
    profile: ModelProfile
    workload: Path

    def restricted_to(self, paths: Paths) -> PlannerInputs:
        """Returns a copy with these paths and their options only."""
        used = {option for path in paths for option in path}
        options = {name: option for name, option in self.model.options.items() if name in used}
        model = self.model.model_copy(update={"options": options, "paths": tuple(paths)})
        return replace(self, model=model, profile=self.profile.restricted_to(options))

    def write(self, model: Path, profile: Path) -> None:
        self.model.write(model)
        self.profile.write(profile)


@dataclass(frozen=True, slots=True)
class StrategyMeasurement:
    """Measures strategies on an instance.

    Args:
        seconds: smallest duration of each run.
        runs: runs with many requests in flight.
        error: half width of the profile's 95 % confidence intervals, relative to the rates.
        budget: device time for the profile of a workload.
    """

    instance: SlotInstance
    seconds: float
    runs: int
    error: float
    budget: str

    def measure(
        self, client: Client, workload: StrategyWorkload, strategies: Collection[str]
    ) -> Iterator[DeployedStrategy]:
        """Yields the result of each strategy."""
        inputs = self._profile(workload, strategies)
        for strategy in strategies:
            plan = self._plan(workload, strategy, inputs)
            cell = next(cell for cell in plan["cells"] if cell["count"])
            predicted = sum(cell["count"] * cell["rate"] for cell in plan["cells"])
            client.deploy(inputs.app, name=workload.name, plan=app_plan(plan), timeout=DEPLOY_SECONDS)
            measured = [self._saturate(client, workload, run) for run in range(self.runs)]
            latencies = self._arrive(client, workload, predicted * POISSON_UTILIZATION)
            client.delete(workload.name)
            self.instance.wait_for_executors(0)
            replicas = {option: cell["count"] * count for option, count in cell["replicas"].items()}
            yield DeployedStrategy(
                workload.name,
                strategy,
                replicas,
                predicted,
                measured,
                1000 * percentile(latencies, 50),
                1000 * percentile(latencies, 99),
            )

    def _profile(self, workload: StrategyWorkload, strategies: Collection[str]) -> PlannerInputs:
        directory = self.instance.directory
        app = workload.write_app(directory)
        profile = directory / f"{workload.name}.profile.json"
        used = {option for strategy in strategies for path in workload.strategies[strategy] for option in path}
        options = [part for option in sorted(used) for part in ("--option", option)]
        requests = workload.profile_arguments(directory)
        goal = ("--budget", self.budget, "--error", str(self.error), "--output", str(profile))
        self.instance.cornserve("profile", str(app), *options, *requests, *goal)
        model = ModelDocument.parse(self.instance.cornserve("plan", "from", str(app)), "model.yaml")
        return PlannerInputs(app, model, ModelProfile.read(profile), workload.write_shares(directory))

    def _plan(self, workload: StrategyWorkload, strategy: str, inputs: PlannerInputs) -> Any:
        """Returns the plan with the paths of the strategy only."""
        directory, paths = self.instance.directory, workload.strategies[strategy]
        model, profile, saved = (
            directory / f"{workload.name}.{strategy}.{kind}.json" for kind in ("model", "profile", "plan")
        )
        inputs.restricted_to(paths).write(model, profile)
        files = (str(model), "--profile", str(profile), "--workload", str(inputs.workload))
        goal = ("--gpus", str(self.instance.slots), "--whole", "--utilization", "1", "--save", str(saved))
        self.instance.cornserve("plan", *files, *goal)
        return json.loads(saved.read_text())

    def _saturate(self, client: Client, workload: StrategyWorkload, run: int) -> float:
        duration = WARM_UP_SECONDS + self.seconds

        def is_done(seen: Observations) -> bool:
            return seen.now() > duration and len(_after_warm_up(seen)) > MIN_ROUNDS * seen.concurrency

        async def load() -> Observations:
            async with TimedClient(client.address) as timed:
                driver = LoadDriver(timed, _calls(workload, run), lambda _: None)
                return await driver.closed_loop(16 * self.instance.slots, is_done)

        seen = asyncio.run(load())
        return _rate(_after_warm_up(seen), seen.concurrency)

    def _arrive(self, client: Client, workload: StrategyWorkload, rate: float) -> list[float]:
        async def load() -> Observations:
            async with TimedClient(client.address) as timed:
                driver = LoadDriver(timed, _calls(workload, self.runs), lambda _: None)
                return await driver.poisson(rate, lambda seen: seen.now() > self.seconds, Random(1))

        return sorted(asyncio.run(load()).latencies)


def _after_warm_up(seen: Observations) -> list[float]:
    return [end for end in seen.ends if end > WARM_UP_SECONDS]


def _rate(ends: Sequence[float], concurrency: int) -> float:
    """Returns completions per second in whole rounds: engines complete several requests at once."""
    last = (len(ends) - 1) // concurrency * concurrency
    return last / (ends[last] - ends[0])


def app_plan(plan: Any) -> AppPlan:
    """Returns the deployable part of a plan from `cornserve plan --json`."""
    return AppPlan.of(Plan.model_validate(plan, extra="ignore"))


def _calls(workload: StrategyWorkload, seed: int) -> Iterator[ApiCall]:
    template = calls.invoke(workload.name, {}, 600.0)
    for body in workload.draw_requests(seed):
        yield ApiCall("POST", template.path, body, template.accept, template.read_timeout, template.timeout)
