"""The report of the costs of an hour, by app and executor group."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace

import httpx2 as httpx
import pytest

from cornserve.app.costs import CostReport
from cornserve.app.overview import ReadGateways
from cornserve.app.record import AppStatus, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.app.settings import ExecutorOverride
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import APPS, AppRecord, Store
from cornserve.gateway.live.cost_history import CostHistory
from cornserve.gateway.live.cost_report import cost_report
from cornserve.gateway.live.replica_prices import request_cost
from cornserve.gateway.observe.request_stats import AppStats
from cornserve.gpu_prices import GpuPrices
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.published_route import publish_status
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import CHAT
from tests.waiting import until

PRICES = GpuPrices.parse(["3.6"])  # a tenth of a cent for each second
HOUR = 3600.0
CHAT_BODY = {"model": "parrot", "messages": [{"role": "user", "content": "one two three"}]}


class FakeInstance:
    """Apps with executor groups and two gateways, at a time that the test sets."""

    def __init__(self) -> None:
        self.records: dict[str, AppRecord] = {}
        self.stats = [dict[str, AppStats](), dict[str, AppStats]()]
        self.gateways = [CostHistory(lambda: self.records, lambda each=each: each, PRICES, 0.0) for each in self.stats]  # type: ignore[misc]

    def run(self, app: str, **replicas: int) -> None:
        """Sets the replicas of the groups of an app. A replica has two GPUs."""
        groups = [
            GroupStatus(
                key=key,
                executor=key,
                gpus=2,
                wanted=count,
                replicas=[ReplicaStatus(id=f"{key}-{index}", state=ReplicaState.READY) for index in range(count)],
            )
            for key, count in replicas.items()
        ]
        status = AppStatus(phase=Phase.SERVING, generation=1, groups=groups)
        spec = AppSpec(model=AppModel(id="model"))
        self.records[app] = SimpleNamespace(spec=spec, status=status)  # type: ignore[assignment]

    def compute(self, gateway: int, app: str, group: str, seconds: float) -> None:
        self.stats[gateway].setdefault(app, AppStats()).compute_seconds[group] += seconds

    def read(self, now: float) -> None:
        for gateway in self.gateways:
            gateway.read(now)

    def report(self, seconds: float = HOUR) -> CostReport:
        computed = [gateway.window(seconds).computed for gateway in self.gateways]
        return cost_report(self.gateways[0].window(seconds), computed, ReadGateways(read=2))


@pytest.fixture
def instance() -> FakeInstance:
    return FakeInstance()


def changes() -> Iterator[tuple[float, int]]:
    """Yields times within two hours at which the number of replicas of the shared executor changes."""
    rng, now = Random(48), 0.0
    while now < 2 * HOUR:
        yield now, rng.randint(0, 8)
        now += rng.uniform(5, 400)


def test_the_costs_of_an_hour_of_mixed_traffic_are_slots_times_seconds_times_price(instance: FakeInstance) -> None:
    rng, slot_seconds, last = Random(7), 0.0, (0.0, 0)
    changed = dict(changes())
    for now in sorted({*changed, *(15.0 * step for step in range(int(2 * HOUR / 15) + 1))}):
        start = max(last[0], HOUR)
        slot_seconds += 2 * (last[1] + 1) * max(0.0, now - start)
        count = changed.get(now, last[1])
        last = now, count
        for gateway in (0, 1):
            for app, groups in (("a", ["shared", "alone"]), ("b", ["shared"])):
                for group in groups:
                    if rng.random() < 0.6:
                        instance.compute(gateway, app, group, rng.expovariate(1))
        instance.read(now)
        instance.run("a", shared=count, alone=1)
        instance.run("b", shared=count)
        instance.read(now)

    report = instance.report()

    assert report.seconds == pytest.approx(HOUR, rel=0.01)
    assert [app.app for app in report.apps] == ["a", "b"]
    assert math.fsum(stage.dollars or 0 for app in report.apps for stage in app.stages) == pytest.approx(
        slot_seconds * 0.001, rel=0.01
    )
    assert report.dollars == pytest.approx(report.gpu_seconds * 0.001)
    shared = {app.app: stage for app in report.apps for stage in app.stages if stage.group == "shared"}
    total = sum(stage.compute_seconds for stage in shared.values())
    for stage in shared.values():
        assert stage.share == pytest.approx(stage.compute_seconds / total)


def test_an_app_that_was_deleted_has_costs_until_then(instance: FakeInstance) -> None:
    instance.run("a", alone=1)
    instance.read(0.0)
    instance.compute(0, "a", "alone", 5.0)
    instance.read(100.0)
    instance.records.clear()
    instance.stats[0].clear()
    for minute in range(2, 30):
        instance.read(60.0 * minute)

    (app,) = instance.report().apps
    assert app.gpu_seconds == pytest.approx(2 * 120.0, abs=41)
    assert app.stages[0].executor == "alone"

    for minute in range(30, 200):
        instance.read(60.0 * minute)
    assert instance.report().apps == []
    assert not instance.gateways[0].groups


def test_a_group_that_returns_after_more_than_an_hour_costs_its_new_time(instance: FakeInstance) -> None:
    instance.run("a", alone=4)
    instance.compute(0, "a", "alone", 900.0)
    instance.read(0.0)
    instance.read(1000.0)
    instance.records.clear()
    for stats in instance.stats:
        stats.clear()
    for minute in range(17, 85):
        instance.read(60.0 * minute)

    instance.run("a", alone=1)
    instance.compute(0, "a", "alone", 5.0)
    instance.read(5_100.0)
    instance.read(5_110.0)

    report = instance.report()
    (app,) = report.apps
    assert report.gpu_seconds == app.gpu_seconds == 2 * 10
    assert app.stages[0].compute_seconds == 5


def test_the_time_of_an_app_without_requests_is_charged_to_it_after_its_end(instance: FakeInstance) -> None:
    instance.run("idle", alone=1)
    instance.read(0.0)
    instance.read(120.0)
    instance.records.clear()
    for minute in range(2, 30):
        instance.read(60.0 * minute)

    report = instance.report()
    assert [(app.app, app.gpu_seconds) for app in report.apps] == [("idle", report.gpu_seconds)]
    assert report.gpu_seconds == 2 * 120

    for minute in range(30, 200):
        instance.read(60.0 * minute)
    assert not instance.gateways[0].groups


def test_a_group_that_is_forgotten_while_gateways_answer_is_reported(instance: FakeInstance) -> None:
    instance.run("a", alone=1)
    instance.read(0.0)
    instance.read(60.0)
    window = instance.gateways[0].window(HOUR)
    instance.records.clear()
    for minute in range(2, 200):
        instance.read(60.0 * minute)

    report = cost_report(window, [window.computed], ReadGateways())

    assert [(app.app, app.gpu_seconds) for app in report.apps] == [("a", 2 * 60)]


def test_an_executor_without_gpus_costs_nothing_whatever_its_type_costs() -> None:
    gpus = {"vocoder": 0, "llm": 1}
    groups = [GroupStatus(key=name, executor=name, gpus=count, wanted=1, replicas=[]) for name, count in gpus.items()]
    overrides = [ExecutorOverride(name="vocoder", gpu_type="L4"), ExecutorOverride(name="*", gpu_type="A100")]
    spec = AppSpec(model=AppModel(id="model"), executors=overrides)

    cost = request_cost({"vocoder": 5.0, "llm": 2.0}, spec, groups, GpuPrices.parse(["A100=3.6"]))

    assert cost == {"gpu_seconds": 2.0, "dollars": pytest.approx(0.002)}


def test_failed_replicas_and_those_that_wait_for_gpus_cost_nothing(instance: FakeInstance) -> None:
    instance.run("a", group=3)
    group = instance.records["a"].status.groups[0]
    _, failed, waiting = group.replicas
    group.replicas[1] = failed.model_copy(update={"state": ReplicaState.FAILED})
    group.replicas[2] = waiting.model_copy(update={"state": ReplicaState.STARTING, "reason": "InsufficientCapacity"})
    instance.read(0.0)
    instance.read(10.0)

    assert instance.report().gpu_seconds == 2 * 10


@with_gateway_options(GatewayOptions(prices=GpuPrices.parse(["3600"])))
class TestCostsOfGateways:
    async def test_the_usage_of_a_request_has_its_cost_if_it_is_wanted(
        self, gateway: httpx.AsyncClient, deploy: Deploy, store: Store
    ) -> None:
        await self.deploy(deploy, store)

        whole = (await gateway.post("/v1/chat/completions", json=CHAT_BODY | {"include_cost": True})).json()
        without = (await gateway.post("/v1/chat/completions", json=CHAT_BODY)).json()

        cost = whole["usage"].pop("cost")
        assert cost["gpu_seconds"] > 0
        assert cost["dollars"] == pytest.approx(cost["gpu_seconds"])
        assert whole["usage"] == without["usage"]

    async def test_the_last_chunk_of_a_stream_has_the_cost(
        self, gateway: httpx.AsyncClient, deploy: Deploy, store: Store
    ) -> None:
        await self.deploy(deploy, store)
        body = CHAT_BODY | {"stream": True, "stream_options": {"include_usage": True}, "include_cost": True}

        lines = (await gateway.post("/v1/chat/completions", json=body)).text.split("\n\n")
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]

        assert chunks[-1]["usage"]["cost"]["dollars"] > 0

    async def test_a_stream_without_usage_cannot_have_a_cost(
        self, gateway: httpx.AsyncClient, deploy: Deploy, store: Store
    ) -> None:
        await self.deploy(deploy, store)
        response = await gateway.post("/v1/chat/completions", json=CHAT_BODY | {"stream": True, "include_cost": True})
        assert response.status_code == 400
        assert "include_usage" in response.json()["error"]["message"]

    async def test_the_report_divides_the_replicas_that_exist(
        self, gateway: httpx.AsyncClient, deploy: Deploy, store: Store
    ) -> None:
        await self.deploy(deploy, store)
        await gateway.post("/v1/chat/completions", json=CHAT_BODY)

        reports: list[CostReport] = []

        async def has_costs() -> bool:
            reports.append(CostReport.model_validate_json((await gateway.get("/admin/v1/costs")).content))
            return any(app.app == "parrot" and app.gpu_seconds > 0 for app in reports[-1].apps)

        await until(has_costs)
        report = reports[-1]
        (app,) = [app for app in report.apps if app.app == "parrot"]
        assert app.stages[0].compute_seconds > 0
        assert app.stages[0].share == 1
        assert report.dollars == pytest.approx(report.gpu_seconds)
        group = app.stages[0].group
        price = f'cornserve_gateway_replica_dollars_per_hour{{group="{group}"}} 3600.0'

        async def has_price() -> bool:
            return price in (await gateway.get("/metrics")).text

        await until(has_price)

    @pytest.mark.parametrize("minutes", ["0", "61", "nan", "x"])
    async def test_an_invalid_time_is_refused(self, gateway: httpx.AsyncClient, minutes: str) -> None:
        assert (await gateway.get(f"/admin/v1/costs?minutes={minutes}")).status_code == 400

    async def deploy(self, deploy: Deploy, store: Store) -> None:
        """Deploys an app whose replicas have one GPU."""
        await deploy(CHAT)
        record = await store.get(APPS, "parrot")
        groups = [group.model_copy(update={"gpus": 1}) for group in record.status.groups]
        await publish_status(store, record, record.status.model_copy(update={"groups": groups}))
