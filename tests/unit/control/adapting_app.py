"""An app that adapts to its load, with made arrivals, made plans and a made clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cornserve.app.adaptation_status import AdaptationStatus
from cornserve.app.plan import AppPlan
from cornserve.app.planning import PlanningInputs
from cornserve.app.record import AppStatus, FailureReason, Phase
from cornserve.app.scale import Scale, scaled_spec
from cornserve.app.settings import AdaptationSettings, AppPolicies
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.description import AppDescription
from cornserve.control.adaptation.arrival_reader import ArrivalReader, Arrivals
from cornserve.control.adaptation.driver import AdaptationDriver
from cornserve.control.adaptation.replanning import Replanning
from cornserve.control.adaptation.served_plan import with_served_plan
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.planning.job import PlanningJob, PlanningResult
from cornserve.control.store.base import APPS, AppRecord, Store, UnreadableRecord
from tests.unit.app.plans import cell, graph, plan
from tests.unit.control.running_controller import FakeLauncher

STEP = 5.0

START = datetime(2026, 11, 23, 8, tzinfo=UTC)

MIX = {"text": 0.25, "images": 0.75}
"""The planned mix."""


class MadeArrivals(ArrivalReader):
    """Returns arrivals that the test sets."""

    def __init__(self) -> None:
        super().__init__(self._no_gateways, "token")
        self.next = Arrivals({}, is_complete=True)
        self.reads = 0

    async def _no_gateways(self) -> list[str]:
        return []

    async def read(self, now: float) -> Arrivals:
        self.reads += 1
        return self.next


class Observer:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    async def on_status(self, app: AppRecord, before: AppStatus) -> None: ...

    async def on_unreadable(self, app: UnreadableRecord) -> None: ...

    async def on_adaptation(self, app: AppRecord, reason: str, message: str) -> None:
        self.events.append((reason, message))


def mixture(small: int, large: int) -> AppPlan:
    """Returns a plan of cells of 1 GPU and 4 requests/s, and of 4 GPUs and 20 requests/s."""
    cells = cell(1, {"EL": 1}, count=small, rate=4.0), cell(4, {"E": 1, "L": 3}, count=large, rate=20.0)
    return plan(*cells)


class MadePlans(Replanning):
    """Returns plans that the test sets."""

    def __init__(self) -> None:
        super().__init__(self._describe_app, self._make_plan)
        self.graph = graph()
        self.jobs: list[PlanningJob] = []
        self.results: list[PlanningResult | Exception] = []
        """The results of the next planners."""
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.running = 0

    async def _describe_app(self, name: str, spec: AppSpec) -> AppDescription:
        return AppDescription(
            name=name,
            paths=["Caption"],
            shares=[1.0],
            max_invocations=1,
            operations=frozenset(),
            finds_media=False,
            executor_specs={},
            library_paths=None,
            graph=self.graph,
        )

    async def _make_plan(self, job: PlanningJob) -> PlanningResult:
        self.jobs.append(job)
        self.running += 1
        try:
            await self.may_finish.wait()
        finally:
            self.running -= 1
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class AdaptingApp:
    """An app whose executors are ready at once, and its load."""

    def __init__(self, store: Store, planned: AppPlan, planning: PlanningInputs | None = None, **settings: Any) -> None:
        self.store = store
        self.now = 0.0
        self.arrivals = MadeArrivals()
        self.replanning = MadePlans()
        self.observer = Observer()
        self.metrics = ControllerMetrics(FakeLauncher())
        self.fits: Callable[[AppPlan], bool] = lambda plan: True
        self.find_obstacle: Callable[[AppPlan, AppPlan], str | None] = self._find_obstacle
        self.most_gpus = float("inf")
        self.driver = AdaptationDriver(
            store,
            self.arrivals,
            lambda _, plan, kept: self.find_obstacle(plan, kept),
            lambda _: self.most_gpus,
            self.metrics,
            self.observer,
            on_change=lambda: None,
            replanning=self.replanning,
            clock=lambda: self.now,
            wall_clock=lambda: self.time,
        )
        self.invocations: dict[str, dict[str, float]] = {}
        """The invocations of each deployment option by a request, by type."""
        self.phase = Phase.SERVING
        self.failures: dict[int, FailureReason] = {}
        """The reasons of failed generations."""
        self.served: AppSpec | None = None
        """The spec that serves while the newest generation has failed."""
        self._random = random.Random(0)
        policies = AppPolicies(adaptation=AdaptationSettings(**settings), log_decisions=True)
        self._spec = AppSpec(source=AppSource(inline="app = ..."), plan=planned, planning=planning, policies=policies)

    def _find_obstacle(self, plan: AppPlan, kept: AppPlan) -> str | None:
        return None if self.fits(plan) else "too large"

    async def deploy(self) -> None:
        await self.store.create(APPS, "caption", self._spec)
        await self.control()

    async def control(self) -> None:
        """Writes the status, and delivers the records, like a controller."""
        record = await self.store.get(APPS, "caption")
        reason = self.failures.get(record.generation)
        phase = self.phase if reason is None else Phase.FAILED
        adaptation = self.driver.status("caption")
        status = AppStatus(phase=phase, generation=record.generation, reason=reason, adaptation=adaptation)
        if status != record.status:
            await self.store.update_status(APPS, "caption", status, record.version)
        records = (await self.store.list(APPS)).records
        self.driver.update({record.name: with_served_plan(record, self.served) for record in records})

    async def run(self, rate: float, seconds: float, mix: Mapping[str, float] = MIX) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            counts = {name: self._count(rate * share) for name, share in mix.items()}
            invocations = {
                name: {option: round(ratio * counts[name]) for option, ratio in self.invocations.get(name, {}).items()}
                for name in mix
            }
            self.arrivals.next = Arrivals(
                {"caption": counts}, is_complete=True, type_invocations={"caption": invocations}
            )
            await self.driver.step()
            await self.control()
            await asyncio.sleep(0)  # The planner runs.

    def _count(self, rate: float) -> int:
        """Returns a nearly Poisson distributed number of arrivals."""
        return sum(self._random.random() < rate * STEP / 500 for _ in range(500))

    @property
    def time(self) -> datetime:
        """The time of day."""
        return START + timedelta(seconds=self.now)

    async def scale(self, **size: Any) -> None:
        record = await self.store.get(APPS, "caption")
        await self.update_spec(scaled_spec("caption", record.spec, Scale(**size), self.time))

    async def plan(self) -> AppPlan:
        planned = (await self.store.get(APPS, "caption")).spec.plan
        assert planned is not None
        return planned

    async def update_spec(self, spec: AppSpec) -> None:
        await self.store.update_spec(APPS, "caption", spec, (await self.store.get(APPS, "caption")).version)
        await self.control()

    async def approve(self) -> None:
        record = await self.store.get(APPS, "caption")
        assert record.status.adaptation is not None
        adaptation = record.status.adaptation
        proposal = adaptation.plan_proposal or adaptation.proposal
        approved = scaled_spec("caption", record.spec, Scale(approve=True), self.time, proposal)
        await self.update_spec(approved)

    @property
    def has_findings(self) -> bool:
        """Whether a change waits for an approval, or the mix is not as planned."""
        status = self.driver.status("caption") or AdaptationStatus()
        return any((status.proposal, status.plan_proposal, status.mix_shift))

    def metric(self, name: str, labels: Mapping[str, str]) -> float | None:
        return self.metrics.registry.get_sample_value(f"cornserve_controller_{name}", dict(labels))


async def adapting(store: Store, planned: AppPlan, **settings: Any) -> AdaptingApp:
    app = AdaptingApp(store, planned, **settings)
    await app.deploy()
    return app
