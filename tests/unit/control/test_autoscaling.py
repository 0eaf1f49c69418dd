"""Apps that are autoscaled, with made loads and a made clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cornserve.app.plan import AppPlan
from cornserve.app.planned_replicas import planned_replicas
from cornserve.app.record import AppStatus, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.app.scale import Scale, scaled_spec
from cornserve.app.settings import AppPolicies, AutoscaledExecutor, AutoscalingSettings
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.adaptation.arrival_reader import Arrivals
from cornserve.control.adaptation.driver import AdaptationDriver
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import APPS, Store
from cornserve.control.store.sqlite import SqliteStore
from tests.unit.app.plans import cell, plan
from tests.unit.control.adapting_app import START, MadeArrivals, MadePlans, Observer
from tests.unit.control.running_controller import FakeLauncher

STEP = 5

READY = ReplicaStatus(id="replica", state=ReplicaState.READY)

SETTINGS = AutoscalingSettings(
    executors=[
        AutoscaledExecutor(name="llm", capacity=1000, max_replicas=4),
        AutoscaledExecutor(name="encoder", capacity=20, unit="requests"),
    ]
)


class AutoscalingApp:
    """An app with an encoder and two language models, whose executors are ready at once, and its load."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 0.0
        self.executors = {"llm-1": ("llm", ""), "llm-2": ("llm", ""), "encoder-1": ("encoder", "")}
        """The names of the executors and the options of the plan, by group."""
        self.other_wanted: dict[str, int] = {}
        """The replicas that other apps add to groups."""
        self.other_tokens: dict[str, int] = {}
        """The tokens of other apps in each round, by group."""
        self.phase = Phase.SERVING
        self.most_ready = 64
        """The most replicas of an executor that become ready."""
        self.missed = 0
        """The requests of each round that miss the TTFT target, of 20."""
        self.late_us: dict[str, int] = {}
        """The missed time of each round, by executor group."""
        self.arrivals = MadeArrivals()
        self.observer = Observer()
        self.metrics = ControllerMetrics(FakeLauncher())
        self.driver = AdaptationDriver(
            store,
            self.arrivals,
            lambda name, plan, kept: None,
            lambda name: float("inf"),
            self.metrics,
            self.observer,
            on_change=lambda: None,
            replanning=MadePlans(),
            clock=lambda: self.now,
            wall_clock=lambda: self.time,
        )

    @property
    def time(self) -> datetime:
        """The time of day."""
        return START + timedelta(seconds=self.now)

    async def scale(self, **size: Any) -> None:
        record = await self.store.get(APPS, "chat")
        spec = scaled_spec("chat", record.spec, Scale(**size), self.time)
        await self.store.update_spec(APPS, "chat", spec, record.version)
        await self.control()

    async def deploy(self, planned: AppPlan | None = None) -> None:
        policies = AppPolicies(autoscaling=SETTINGS, log_decisions=True)
        spec = AppSpec(source=AppSource(inline="app = ..."), policies=policies, plan=planned)
        await self.store.create(APPS, "chat", spec)
        await self.control()

    async def control(self) -> None:
        """Writes the status, and delivers the records, like a controller."""
        record = await self.store.get(APPS, "chat")
        unready = [
            GroupStatus(key=key, executor=name, option=option, wanted=0, replicas=[])
            for key, (name, option) in self.executors.items()
        ]
        groups = [
            group.model_copy(update={"wanted": wanted, "replicas": [READY] * min(wanted, self.most_ready)})
            for group in unready
            for own in [self.replicas_of(record.spec, group.executor, unready)]
            for wanted in [own + self.other_wanted.get(group.key, 0)]
        ]
        adaptation = self.driver.status("chat")
        status = AppStatus(phase=self.phase, generation=record.generation, groups=groups, adaptation=adaptation)
        if status != record.status:
            await self.store.update_status(APPS, "chat", status, record.version)
        self.driver.update({"chat": await self.store.get(APPS, "chat")})

    async def run(self, seconds: int, *, tokens: Mapping[str, int], images: int) -> None:
        """Runs for some time with loads per second."""
        for _ in range(seconds // STEP):
            self.now += STEP
            loads = {group: STEP * count for group, count in tokens.items()}
            self.arrivals.next = Arrivals(
                {},
                is_complete=True,
                invocations={"chat": {"encoder-1": STEP * images, "llm-1": 1}},
                tokens={"chat": loads, "other": self.other_tokens},
                met={"chat": {"ttft": 20 - self.missed}},
                missed={"chat": {"ttft": self.missed}},
                late_us={"chat": self.late_us},
            )
            await self.driver.step()
            await self.control()

    async def replicas(self) -> tuple[int, int]:
        """Returns the numbers of replicas of the language models and of the encoder."""
        record = await self.store.get(APPS, "chat")
        groups = record.status.groups
        return self.replicas_of(record.spec, "llm", groups), self.replicas_of(record.spec, "encoder", groups)

    def replicas_of(self, spec: AppSpec, executor: str, groups: Sequence[GroupStatus]) -> int:
        if spec.plan is None:
            return spec.replicas_of(executor)
        planned = planned_replicas(spec, groups).get(executor)
        return 0 if planned is None else planned.running(spec.executor_replicas.get(executor))

    def metric(self, name: str, executor: str, unit: str) -> float | None:
        labels = {"app": "chat", "executor": executor, "unit": unit}
        return self.metrics.registry.get_sample_value(f"cornserve_controller_executor_{name}", labels)


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[AutoscalingApp]:
    store = await SqliteStore.open(tmp_path / "state.db")
    app = AutoscalingApp(store)
    await app.deploy()
    yield app
    await store.close()


async def test_only_the_executor_with_more_load_is_scaled(chat: AutoscalingApp) -> None:
    await chat.run(300, tokens={"llm-1": 900}, images=10)
    assert await chat.replicas() == (1, 1)

    await chat.run(120, tokens={"llm-1": 900}, images=50)
    assert await chat.replicas() == (1, 3)

    await chat.run(120, tokens={"llm-1": 100, "llm-2": 2500}, images=50)
    assert await chat.replicas() == (3, 3)

    await chat.run(1800, tokens={"llm-1": 100}, images=10)
    assert await chat.replicas() == (1, 1)


async def test_replicas_that_users_have_started_hold_for_a_time(chat: AutoscalingApp) -> None:
    await chat.run(1200, tokens={"llm-1": 500}, images=10)

    await chat.scale(executors={"llm": 3})
    await chat.run(895, tokens={"llm-1": 500}, images=10)
    assert await chat.replicas() == (3, 1)

    await chat.run(120, tokens={"llm-1": 500}, images=10)
    assert await chat.replicas() == (1, 1)


async def test_replicas_beyond_the_limits_hold_for_a_time(chat: AutoscalingApp) -> None:
    await chat.scale(replicas=6, hold_seconds=100)
    await chat.run(95, tokens={"llm-1": 500}, images=10)
    assert await chat.replicas() == (6, 6)

    await chat.run(10, tokens={"llm-1": 500}, images=10)
    assert await chat.replicas() == (4, 6)


async def test_the_load_before_a_change_by_users_does_not_count(chat: AutoscalingApp) -> None:
    await chat.run(1200, tokens={"llm-1": 2500}, images=10)
    assert await chat.replicas() == (3, 1)

    await chat.scale(executors={"llm": 1}, hold_seconds=0)
    await chat.run(600, tokens={"llm-1": 500}, images=10)
    assert await chat.replicas() == (1, 1)

    await chat.scale(executors={"llm": 3}, hold_seconds=0)
    await chat.run(900, tokens={"llm-1": 500}, images=10)
    assert await chat.replicas() == (3, 1)

    await chat.run(120, tokens={"llm-1": 500}, images=10)
    assert await chat.replicas() == (1, 1)


async def test_changes_are_reported_with_their_loads(chat: AutoscalingApp) -> None:
    await chat.run(300, tokens={"llm-1": 500}, images=50)

    reason, message = chat.observer.events[0]
    assert reason == "Adapted"
    assert message == ("a load of 50/s arrived, and a replica takes 20/s: runs 3 replicas of encoder instead of 1")
    status = (await chat.store.get(APPS, "chat")).status.adaptation
    assert status is not None
    llm, encoder = status.executors
    assert (llm.load, llm.unit) == (500, "tokens")
    assert (encoder.load, encoder.unit) == (50, "requests")
    assert chat.metric("load", "llm", "tokens") == 500
    assert chat.metric("capacity", "encoder", "requests") == 60


async def test_a_steady_load_writes_no_status(chat: AutoscalingApp) -> None:
    await chat.run(300, tokens={"llm-1": 500}, images=10)
    version = (await chat.store.get(APPS, "chat")).version

    await chat.run(300, tokens={"llm-1": 520}, images=10)

    assert (await chat.store.get(APPS, "chat")).version == version


async def test_replicas_stay_within_their_limits(chat: AutoscalingApp) -> None:
    await chat.run(300, tokens={"llm-1": 9000}, images=0)
    assert await chat.replicas() == (4, 1)


async def test_a_load_is_unknown_until_a_window_is_over(chat: AutoscalingApp) -> None:
    await chat.run(30, tokens={"llm-1": 500}, images=10)
    status = chat.driver.status("chat")
    assert status is not None
    assert [each.load for each in status.executors] == [None, None]
    assert chat.metric("load", "llm", "tokens") is None

    await chat.run(60, tokens={"llm-1": 500}, images=10)
    status = chat.driver.status("chat")
    assert status is not None
    assert [each.load for each in status.executors] == [500, 10]


async def test_a_missed_target_adds_a_replica_to_the_busiest_executor(chat: AutoscalingApp) -> None:
    chat.missed = 8
    await chat.run(65, tokens={"llm-1": 300}, images=10)
    assert await chat.replicas() == (1, 2)
    assert chat.observer.events == [
        (
            "Adapted",
            "60% of 240 requests met the ttft target in 60 s, not 95%: runs 2 replicas of encoder instead of 1",
        )
    ]

    chat.missed = 0
    await chat.run(600, tokens={"llm-1": 300}, images=10)
    assert await chat.replicas() == (1, 2)
    await chat.run(600, tokens={"llm-1": 300}, images=10)
    assert await chat.replicas() == (1, 1)


async def test_a_missed_target_adds_a_replica_to_the_executor_that_causes_it(chat: AutoscalingApp) -> None:
    """The encoder has the highest load, but requests are late in the second language model."""
    chat.missed, chat.late_us = 8, {"encoder-1": 2_000_000, "llm-1": 1_000_000, "llm-2": 5_000_000}
    await chat.run(65, tokens={"llm-1": 300}, images=18)

    assert await chat.replicas() == (2, 1)
    ((_, message),) = chat.observer.events
    assert "and llm causes 75% of the missed time: runs 2 replicas of llm instead of 1" in message


async def test_no_other_executor_grows_if_the_one_that_causes_the_missed_time_may_not(chat: AutoscalingApp) -> None:
    chat.missed, chat.late_us = 8, {"encoder-1": 1_000_000, "llm-1": 9_000_000}
    await chat.run(1200, tokens={"llm-1": 300}, images=10)
    assert await chat.replicas() == (4, 1)


async def test_missed_targets_add_replicas_only_when_all_are_ready_and_up_to_the_limit(chat: AutoscalingApp) -> None:
    chat.missed, chat.most_ready = 8, 1
    await chat.run(600, tokens={"llm-1": 900}, images=1)
    assert await chat.replicas() == (2, 1)

    chat.most_ready = 64
    await chat.run(160, tokens={"llm-1": 900}, images=0)
    assert await chat.replicas() == (4, 1)


async def test_the_load_of_an_executor_without_a_plan_is_that_of_all_apps(chat: AutoscalingApp) -> None:
    chat.other_tokens = {"llm-1": STEP * 1500}
    await chat.run(120, tokens={"llm-1": 500}, images=0)
    assert await chat.replicas() == (2, 1)


def one_cell(replicas: dict[str, int], **fields: Any) -> AppPlan:
    """Returns a plan of one shared cell."""
    return plan(cell(sum(replicas.values()), replicas, count=1, is_shared=True), **fields)


async def deployed(folder: Path, planned: AppPlan, **executors: tuple[str, str]) -> AutoscalingApp:
    """Returns an app with a plan. `executors`: the names of the executors and the options of the plan, by group."""
    app = AutoscalingApp(await SqliteStore.open(folder / "planned.db"))
    app.executors = executors
    await app.deploy(planned)
    return app


@pytest.fixture
async def planned(tmp_path: Path) -> AsyncIterator[AutoscalingApp]:
    """An app with a plan of an encoder and two replicas of a language model, on three GPUs."""
    groups = {"llm-1": ("llm", "L"), "encoder-1": ("encoder", "E")}
    app = await deployed(tmp_path, one_cell({"E": 1, "L": 2}), **groups)
    yield app
    await app.store.close()


async def test_stages_of_a_plan_share_its_gpus(planned: AutoscalingApp) -> None:
    await planned.run(600, tokens={"llm-1": 900}, images=50)
    assert await planned.replicas() == (2, 1)

    await planned.run(600, tokens={"llm-1": 900}, images=50)
    assert await planned.replicas() == (1, 2)
    assert planned.metric("capacity", "encoder", "requests") == 40

    await planned.run(1200, tokens={"llm-1": 900}, images=10)
    assert await planned.replicas() == (1, 1)

    await planned.run(120, tokens={"llm-1": 1900}, images=10)
    assert await planned.replicas() == (2, 1)


async def test_a_stage_of_a_plan_gets_the_gpus_of_others_while_targets_are_missed(planned: AutoscalingApp) -> None:
    planned.missed, planned.late_us = 8, {"encoder-1": 5_000_000}

    await planned.run(1200, tokens={"llm-1": 900}, images=50)

    assert await planned.replicas() == (1, 2)


async def test_the_budget_is_that_of_the_running_cell(planned: AutoscalingApp) -> None:
    record = await planned.store.get(APPS, "chat")
    larger = record.spec.changed(plan=one_cell({"E": 1, "L": 2, "EL": 3}))
    await planned.store.update_spec(APPS, "chat", larger, record.version)
    await planned.control()
    await planned.run(1200, tokens={"llm-1": 2500}, images=50)
    assert await planned.replicas() == (2, 1)

    record = await planned.store.get(APPS, "chat")
    larger = record.spec.changed(plan=one_cell({"E": 2, "L": 3}), executor_replicas={})
    await planned.store.update_spec(APPS, "chat", larger, record.version)
    await planned.control()
    await planned.run(1200, tokens={"llm-1": 3500}, images=10)
    assert await planned.replicas() == (4, 1)


async def test_numbers_that_users_have_set_leave_or_take_gpus_of_the_plan(planned: AutoscalingApp) -> None:
    await planned.scale(executors={"llm": 1}, hold_seconds=0)
    await planned.run(600, tokens={"llm-1": 900}, images=90)
    assert await planned.replicas() == (1, 2)

    await planned.scale(executors={"llm": 3}, hold_seconds=0)
    await planned.run(600, tokens={"llm-1": 2900}, images=90)
    assert await planned.replicas() == (3, 2)


async def test_replicas_and_loads_of_other_apps_are_not_those_of_an_app_with_a_plan(planned: AutoscalingApp) -> None:
    planned.other_wanted, planned.other_tokens = {"llm-1": 4}, {"llm-1": STEP * 9000}
    await planned.control()
    await planned.run(600, tokens={"llm-1": 1500}, images=10)
    assert await planned.replicas() == (2, 1)
    assert planned.metric("capacity", "llm", "tokens") == 2000

    await planned.run(1200, tokens={"llm-1": 500}, images=30)

    assert await planned.replicas() == (1, 2)


async def test_a_restart_of_an_executor_of_a_plan_changes_no_number(planned: AutoscalingApp) -> None:
    await planned.run(1200, tokens={"llm-1": 1900}, images=10)
    planned.executors = {"llm-1": ("llm", "L"), "llm-2": ("llm", "L"), "encoder-1": ("encoder", "E")}
    await planned.run(60, tokens={"llm-1": 900, "llm-2": 1000}, images=10)
    assert planned.metric("capacity", "llm", "tokens") == 2000
    planned.executors = {"llm-2": ("llm", "L"), "encoder-1": ("encoder", "E")}

    await planned.run(60, tokens={"llm-2": 900}, images=10)

    assert await planned.replicas() == (2, 1)
    assert (await planned.store.get(APPS, "chat")).generation == 1
    assert planned.metric("load", "llm", "tokens") == pytest.approx(1700, rel=0.05)


async def test_executors_that_the_cell_of_a_plan_lacks_are_left_out(tmp_path: Path) -> None:
    app = await deployed(tmp_path, one_cell({"EL": 2}), **{"llm-1": ("llm", "EL")})

    await app.run(1200, tokens={"llm-1": 900}, images=50)

    record = await app.store.get(APPS, "chat")
    assert record.spec.executor_replicas == {"llm": 1}
    assert record.status.adaptation is not None
    assert [load.name for load in record.status.adaptation.executors] == ["llm"]
    assert app.metric("capacity", "encoder", "requests") is None
    await app.store.close()


async def test_an_app_that_cannot_be_adapted_does_not_stop_the_others(
    chat: AutoscalingApp, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenArrivals(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            if key == "broken":
                raise ValueError("a defect")
            return super().get(key, default)

    spec = AppSpec(source=AppSource(inline="app = ..."), plan=one_cell({"EL": 1}))
    broken = await chat.store.create(APPS, "broken", spec)
    chat.driver.update({"broken": broken})
    chat.driver.update({"broken": broken, "chat": await chat.store.get(APPS, "chat")})
    invocations = {"chat": {"encoder-1": STEP * 50}}
    for _ in range(60):
        chat.now += STEP
        chat.arrivals.next = Arrivals(BrokenArrivals(), is_complete=True, invocations=invocations)
        await chat.driver.step()

    assert await chat.replicas() == (1, 3)
    assert "adapting the app broken failed" in caplog.text
    assert chat.metrics.registry.get_sample_value("cornserve_controller_reconcile_errors_total") == 60


async def test_an_app_without_settings_is_not_scaled_any_more(chat: AutoscalingApp) -> None:
    await chat.run(120, tokens={"llm-1": 500}, images=0)
    record = await chat.store.get(APPS, "chat")
    await chat.store.update_spec(
        APPS, "chat", record.spec.model_copy(update={"policies": AppPolicies()}), record.version
    )
    await chat.control()

    await chat.run(120, tokens={"llm-1": 9000}, images=0)

    assert await chat.replicas() == (1, 1)
    assert chat.driver.status("chat") is None
    assert chat.metric("load", "llm", "tokens") is None


async def test_an_app_that_does_not_serve_is_not_scaled(chat: AutoscalingApp) -> None:
    chat.phase = Phase.PARKED
    await chat.run(300, tokens={"llm-1": 9000}, images=0)
    assert await chat.replicas() == (1, 1)
