"""Profiles an app, plans each strategy, deploys the plans and measures them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.strategies.workloads import STRATEGIES, StageWorkload
from cornserve.app.plan import AppPlan
from cornserve.app.record import AppSpec
from cornserve.bench.percentiles import percentile
from cornserve.bench.timed_client import TimedClient
from cornserve.client import Client, calls
from cornserve.client.calls import ApiCall
from cornserve.profiler.batch_means import estimate_rate
from cornserve.profiler.loads import LoadDriver, Observations
from cornserve_planner.model_document import ModelDocument
from cornserve_planner.profiles.profile import ModelProfile

POISSON_UTILIZATION = 0.8


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
class StrategyMeasurement:
    """Measures strategies on an instance. `seconds`: duration of each run."""

    instance: SlotInstance
    seconds: float
    runs: int

    def measure(
        self, client: Client, workload: StageWorkload, strategies: Collection[str], error: float
    ) -> Iterator[DeployedStrategy]:
        """Yields the result of each strategy.

        Args:
            error: the half width of the profile's 95 % confidence intervals, relative to the rates.
        """
        app, profile = self._profile(workload, strategies, error)
        for strategy in strategies:
            paths = STRATEGIES[strategy]
            plan = self._plan(workload, strategy, app, profile, paths)
            cell = next(cell for cell in plan["cells"] if cell["count"])
            predicted = sum(cell["count"] * cell["rate"] for cell in plan["cells"])
            spec = AppSpec(source=workload.app, plan=app_plan(plan))
            client.deploy(spec, name=workload.name, timeout=60)
            measured = [self._saturate(client, workload, run) for run in range(self.runs)]
            latencies = self._arrive(client, workload, predicted * POISSON_UTILIZATION)
            client.delete(workload.name)
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

    def _profile(self, workload: StageWorkload, strategies: Collection[str], error: float) -> tuple[Path, Path]:
        app, requests = (
            self.instance.directory / f"{workload.name}.py",
            self.instance.directory / f"{workload.name}.jsonl",
        )
        app.write_text(workload.app)
        requests.write_text(workload.requests)
        profile = self.instance.directory / f"{workload.name}.profile.json"
        used = {option for strategy in strategies for path in STRATEGIES[strategy] for option in path}
        options = [part for option in sorted(used) for part in ("--option", option)]
        goal = ("--requests", str(requests), "--budget", "30m", "--error", str(error), "--output", str(profile))
        self.instance.cornserve("profile", str(app), *options, *goal)
        return app, profile

    def _plan(
        self, workload: StageWorkload, strategy: str, app: Path, profile: Path, paths: list[tuple[str, ...]]
    ) -> Any:
        """Returns the plan with the paths of the strategy only."""
        model = ModelDocument.parse(self.instance.cornserve("plan", "--from", str(app)), "model.yaml")
        used = {option for path in paths for option in path}
        options = {name: option for name, option in model.options.items() if name in used}
        files = {
            name: self.instance.directory / f"{workload.name}.{strategy}.{name}.json" for name in ("model", "profile")
        }
        model.model_copy(update={"options": options, "paths": tuple(paths)}).write(files["model"])
        ModelProfile.read(profile).restricted_to(options).write(files["profile"])
        shares = self.instance.directory / f"{workload.name}.workload.json"
        shares.write_text(workload.document)
        saved = self.instance.directory / f"{workload.name}.{strategy}.plan.json"
        inputs = (str(files["model"]), "--profile", str(files["profile"]), "--workload", str(shares))
        goal = ("--gpus", str(self.instance.slots), "--whole", "--utilization", "1", "--save", str(saved))
        self.instance.cornserve("plan", *inputs, *goal)
        return json.loads(saved.read_text())

    def _saturate(self, client: Client, workload: StageWorkload, run: int) -> float:
        def is_done(seen: Observations) -> bool:
            return seen.now() > self.seconds

        async def load() -> Observations:
            async with TimedClient(client.address) as timed:
                driver = LoadDriver(timed, _calls(workload, run), lambda _: None)
                return await driver.closed_loop(16 * self.instance.slots, is_done)

        estimate = estimate_rate([end for end in asyncio.run(load()).ends if end <= self.seconds])
        assert estimate is not None
        return estimate.rate

    def _arrive(self, client: Client, workload: StageWorkload, rate: float) -> list[float]:
        async def load() -> Observations:
            async with TimedClient(client.address) as timed:
                driver = LoadDriver(timed, _calls(workload, self.runs), lambda _: None)
                return await driver.poisson(rate, lambda seen: seen.now() > self.seconds, Random(1))

        return sorted(asyncio.run(load()).latencies)


def app_plan(plan: Any) -> AppPlan:
    """Returns the deployable part of a plan file."""
    (model,) = plan["models"].values()
    return AppPlan.model_validate(
        {
            "options": {
                name: {**option["executor"], "gpus": option["gpus"], "gpu_type": option["gpu"]}
                for name, option in plan["options"].items()
            },
            "types": {
                name: {
                    "components": kind["components"],
                    "share": kind["share"],
                    "paths": [
                        {"steps": [{name: step[name] for name in ("option", "components")} for step in path["steps"]]}
                        for path in kind["paths"]
                    ],
                }
                for name, kind in plan["types"].items()
            },
            "default_type": model["default_type"] or max(plan["types"], key=lambda name: plan["types"][name]["share"]),
            "cells": [
                {
                    "gpus": sum(cell["gpus"].values()),
                    "loads": {},
                    **{name: cell[name] for name in ("count", "rate", "replicas", "probabilities")},
                }
                for cell in plan["cells"]
            ],
            "planner": plan["provenance"]["planner"],
        }
    )


def _calls(workload: StageWorkload, seed: int) -> Iterator[ApiCall]:
    template = calls.invoke(workload.name, {}, 600.0)
    for body in workload.draws(seed):
        yield ApiCall("POST", template.path, body, template.accept, template.read_timeout, template.timeout)
