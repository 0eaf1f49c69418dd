"""The live figures of apps, which the console and `cornserve status --watch` show."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.app.live_figures import LIVE_PATH, LIVE_TOKEN
from cornserve.app.overview import AppSeries, LiveApp, Overview
from cornserve.app.plan import AppPlan
from cornserve.app.record import AppStatus, FailureReason, Phase, ReplicaExit, ReplicaState
from cornserve.app.settings import AppPolicies, ExecutorOverride, LatencyTargetSettings
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import APPS, Store
from cornserve.gpu_prices import GpuPrices
from tests.credentials import CREDENTIALS
from tests.unit.app.plans import cell, plan_document
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.published_route import publish_status, ready_group
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import CHAT, ECHO
from tests.unit.gateway.test_metrics import sample, samples
from tests.unit.gateway.test_stages import CAPTIONS
from tests.unit.gateway.test_tensors import POST
from tests.waiting import until

INTERNAL = {"authorization": f"Bearer {CREDENTIALS.secret.token(LIVE_TOKEN)}"}
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028"


async def overview(gateway: httpx.AsyncClient) -> Overview:
    return Overview.model_validate_json((await gateway.get("/admin/v1/overview")).content)


async def live(gateway: httpx.AsyncClient, app: str) -> LiveApp:
    response = await gateway.get(f"/admin/v1/apps/{app}/live")
    assert response.status_code == 200, response.text
    return LiveApp.model_validate_json(response.content)


async def events(gateway: httpx.AsyncClient, path: str) -> AsyncIterator[tuple[str, Any]]:
    """Yields the names and the contents of server-sent events."""
    async with gateway.stream("GET", path) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


async def test_the_figures_of_an_app_are_those_of_its_metrics_and_its_status(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(CHAT)
    chat = {"model": "parrot", "stream": True, "messages": [{"role": "user", "content": "one two three four"}]}
    for _ in range(3):
        await gateway.post("/v1/chat/completions", json=chat)
    await gateway.post("/v1/chat/completions", json=chat | {"messages": []})

    figures = (await live(gateway, "parrot")).app
    counted = await samples(gateway)
    record = (await gateway.get("/admin/v1/apps/parrot")).json()

    assert figures.statuses == {
        dict(labels)["status"]: count
        for (name, labels), count in counted.items()
        if name == "cornserve_gateway_requests_total" and ("app", "parrot") in labels
    }
    assert figures.requests_total == 3
    assert figures.running == counted[sample("requests_running", app="parrot")]
    assert figures.prompt_tokens_total == counted[sample("prompt_tokens_total", app="parrot")]
    assert (figures.phase, figures.generation) == (record["status"]["phase"], record["generation"])
    assert (figures.ready, figures.wanted) == (1, record["status"]["groups"][0]["wanted"])
    assert figures.operations == ["chat"]
    assert figures.dollars_per_hour is None
    assert figures.ttft_seconds is not None
    assert figures.tbt_seconds is not None
    assert figures.requests_per_second > 0


async def test_the_edges_of_an_app_are_the_tensors_between_its_executors(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(POST)
    reply = await gateway.post("/v1/apps/post/invoke", json={"texts": ["a", "b"]})
    assert reply.status_code == 200, reply.text

    found = await live(gateway, "post")
    counted = await samples(gateway)

    nodes = {node.group: node for node in found.nodes}
    edges = {(edge.source, edge.target): edge.invocations_total for edge in found.edges}
    assert edges == {
        (dict(labels)["source"] or None, dict(labels)["target"]): count
        for (name, labels), count in counted.items()
        if name == "cornserve_gateway_edge_invocations_total" and ("app", "post") in labels
    }
    inner = [(source, target) for source, target in edges if source is not None]
    assert len(inner) == 1
    assert all(end in nodes for end in inner[0])
    for replica in (replica for node in found.nodes for replica in node.replicas):
        invocations = sum(
            count
            for (name, labels), count in counted.items()
            if name == "cornserve_gateway_invocations_total" and ("replica", replica.id) in labels
        )
        assert replica.invocations_total == invocations


async def test_paths_have_planned_and_actual_shares(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CAPTIONS.format(shares=[1, 0, 0]))
    for _ in range(2):
        await gateway.post("/v1/apps/captions/invoke", json={"text": "two", "images": 2})

    found = await live(gateway, "captions")

    assert [(path.index, path.planned, path.requests_total) for path in found.paths] == [
        (0, 1.0, 2),
        (1, 0.0, 0),
        (2, 0.0, 0),
    ]
    assert found.paths[0].actual == 1.0


async def test_the_overview_has_all_apps_and_what_needs_attention(gateway: httpx.AsyncClient, store: Store) -> None:
    targets = AppPolicies(targets=LatencyTargetSettings(ttft_seconds=0.5))
    spec = AppSpec(model=AppModel(id="model"), policies=targets)
    failed = AppStatus(phase=Phase.FAILED, generation=1, reason=FailureReason.IMPORT_FAILED, message=HOSTILE, groups=[])
    await publish_status(store, await store.create(APPS, "broken", spec), failed)
    await store.create(APPS, "waiting", spec)

    async def is_seen() -> bool:
        return {app.phase for app in (await overview(gateway)).apps} == {Phase.FAILED, Phase.PENDING}

    await until(is_seen)
    found = await overview(gateway)

    assert [app.name for app in found.apps] == ["broken", "waiting"]
    assert [(target.target, target.attainment) for target in found.apps[0].targets] == [("ttft", None)]
    assert [(each.severity, each.app, each.reason, each.message, each.action) for each in found.attention] == [
        ("error", "broken", "Failed", HOSTILE, "cornserve logs broken")
    ]
    assert found.gateways.missing == []


class TestCosts:
    @with_gateway_options(GatewayOptions(prices=GpuPrices.parse(["2", "L4=0.5"])))
    async def test_replicas_cost_the_price_of_their_gpus(self, gateway: httpx.AsyncClient, store: Store) -> None:
        await self.deploy(gateway, store)

        found = await live(gateway, "planned")
        total = await overview(gateway)

        assert found.plan is not None
        assert [found.app.dollars_per_hour, found.plan.dollars_per_hour, found.cells[0].dollars_per_hour] == [4.5] * 3
        assert {app.name: app.dollars_per_hour for app in total.apps} == {"planned": 4.5, "sharing": 0.5}
        assert total.dollars_per_hour == 4.5

    @with_gateway_options(GatewayOptions(prices=GpuPrices.parse(["L4=0.5"])))
    async def test_a_cost_without_a_price_is_unknown(self, gateway: httpx.AsyncClient, store: Store) -> None:
        await self.deploy(gateway, store)

        found = await live(gateway, "planned")
        total = await overview(gateway)

        assert found.plan is not None
        assert (found.app.dollars_per_hour, found.plan.dollars_per_hour) == (None, None)
        assert {app.name: app.dollars_per_hour for app in total.apps} == {"planned": None, "sharing": 0.5}

    @with_gateway_options(GatewayOptions(prices=GpuPrices.parse(["2"])))
    async def test_failed_replicas_and_those_that_wait_for_gpus_cost_nothing(
        self, gateway: httpx.AsyncClient, store: Store
    ) -> None:
        record = await store.create(APPS, "partial", AppSpec(model=AppModel(id="model")))
        group = ready_group("llm", ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]).model_copy(update={"gpus": 2})
        states: list[dict[str, Any]] = [
            {},
            {"state": ReplicaState.FAILED},
            {"state": ReplicaState.STARTING, "reason": "InsufficientCapacity"},
        ]
        replicas = [each.model_copy(update=state) for each, state in zip(group.replicas, states, strict=True)]
        groups = [group.model_copy(update={"replicas": replicas})]
        await publish_status(store, record, AppStatus(phase=Phase.SERVING, generation=1, groups=groups))

        async def is_seen() -> bool:
            return [app.ready for app in (await overview(gateway)).apps] == [1]

        await until(is_seen)
        found = await overview(gateway)

        assert (found.gpus, found.dollars_per_hour) == (2, 4.0)
        assert (found.apps[0].gpus, found.apps[0].dollars_per_hour) == (2, 4.0)

    async def deploy(self, gateway: httpx.AsyncClient, store: Store) -> None:
        """Deploys an app with an encoder on an L4 and two language models on other GPUs, and one that shares the L4."""
        document = plan_document(cell(3, {"E": 1, "L": 2}, count=1))
        document["options"]["E"]["gpu_type"] = "L4"
        spec = AppSpec(model=AppModel(id="model"), plan=AppPlan.model_validate(document))
        encoder = ready_group("encoder", ["127.0.0.1:1"]).model_copy(update={"gpus": 1})
        llm = ready_group("llm", ["127.0.0.1:2", "127.0.0.1:3"]).model_copy(update={"gpus": 1})
        planned = [
            group.model_copy(update={"cell": "3-0", "option": option}) for group, option in ((encoder, "E"), (llm, "L"))
        ]
        record = await store.create(APPS, "planned", spec)
        await publish_status(store, record, AppStatus(phase=Phase.SERVING, generation=1, groups=planned))
        spec = AppSpec(model=AppModel(id="model"), executors=[ExecutorOverride(name="*", gpu_type="L4")])
        record = await store.create(APPS, "sharing", spec)
        await publish_status(store, record, AppStatus(phase=Phase.SERVING, generation=1, groups=[encoder]))

        async def is_seen() -> bool:
            return {app.name: app.ready for app in (await overview(gateway)).apps} == {"planned": 3, "sharing": 1}

        await until(is_seen)


async def test_changes_of_apps_and_exits_of_executors_are_events(gateway: httpx.AsyncClient, store: Store) -> None:
    record = await store.create(APPS, "eventful", AppSpec(model=AppModel(id="model")))
    group = ready_group("llm", ["127.0.0.1:1"])
    exit = ReplicaExit(replica="llm-x", group="llm", time="2026-01-02T03:04:05Z", message="out of memory")  # type: ignore[arg-type]
    await publish_status(store, record, AppStatus(phase=Phase.SERVING, generation=1, groups=[group], exits=[exit]))

    async def is_seen() -> bool:
        return any(event.reason == "ExecutorExited" for event in (await overview(gateway)).events)

    await until(is_seen)
    found = {
        (event.type, event.reason, event.object, event.message)
        for event in (await overview(gateway)).events
        if event.app == "eventful"
    }

    assert ("Warning", "ExecutorExited", "Replica/llm-x", "out of memory") in found
    assert ("Normal", "Deployed", "App/eventful", "generation 1") in found
    assert ("Normal", "Ready", "Replica/replica-127.0.0.1:1", "") in found


async def test_a_stream_of_figures_has_each_change_until_the_app_is_deleted(
    gateway: httpx.AsyncClient, deploy: Deploy, store: Store
) -> None:
    await deploy(ECHO)
    stream = events(gateway, "/admin/v1/apps/echo/live/events")

    name, first = await anext(stream)
    assert (name, first["app"]["ready"]) == ("live", 1)
    record = await store.get(APPS, "echo")
    groups = [
        group.model_copy(
            update={"replicas": [r.model_copy(update={"state": ReplicaState.FAILED}) for r in group.replicas]}
        )
        for group in record.status.groups
    ]
    await publish_status(store, record, record.status.model_copy(update={"groups": groups}))
    name, second = await anext(stream)
    assert (name, second["app"]["replicas"]["failed"]) == ("live", 1)
    await store.delete(APPS, "echo")

    assert [name async for name, _ in stream][-1] == "deleted"


async def test_the_last_hour_of_an_app_has_steps(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)

    series = AppSeries.model_validate_json((await gateway.get("/admin/v1/apps/echo/series")).content)

    assert series.step_seconds == 15
    assert len(series.times) == len(series.requests_per_second) == len(series.ttft_p50) == len(series.failed)


@pytest.mark.parametrize("path", ["live", "live/events", "series"])
async def test_an_unknown_app_has_no_figures(gateway: httpx.AsyncClient, path: str) -> None:
    response = await gateway.get(f"/admin/v1/apps/none/{path}")

    assert (response.status_code, response.json()["error"]["code"]) == (404, "app_not_found")


async def test_gateways_send_each_other_their_figures(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    await gateway.post("/v1/apps/echo/invoke", json={"text": "a"})

    figures = await gateway.get(LIVE_PATH, params={"window": 60, "app": "echo"}, headers=INTERNAL)
    steps = await gateway.get(f"{LIVE_PATH}/series/echo", headers=INTERNAL)

    assert figures.json()["apps"]["echo"]["running"] == 0
    assert [["status", "200"], 1] in figures.json()["apps"]["echo"]["total"]
    assert "steps" in steps.json()
    assert (await gateway.get(LIVE_PATH, params={"window": 60})).status_code == 403
    for window in ("nan", "-1", "1e9", "x"):
        assert (await gateway.get(LIVE_PATH, params={"window": window}, headers=INTERNAL)).status_code in (400, 422)
