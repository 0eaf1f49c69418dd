"""Requests of apps with a plan: type, cell, path and executor group."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.app.app import App
from cornserve.app.arrivals import ARRIVALS_PATH, ARRIVALS_TOKEN, UNPLANNED_TYPE, GatewayArrivals
from cornserve.app.load import load_app
from cornserve.app.response_readers import JSON
from cornserve.app.route_plan import RouteCell, RoutePlan
from cornserve.app.settings import AppPolicies
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.fork_client import ForkServer
from cornserve.blocking_apps import CurrentApp
from cornserve.control.store.base import APPS, Store
from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.app_logs import AppLogLines, RequestLog
from cornserve.gateway.observe.request_stats import AppStats, RequestStats
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request.session import Session
from cornserve.gateway.request_route import RequestRoute
from cornserve.gateway.served_app import ServedApp
from cornserve.gateway.task_runs.hosted_app import HostedApp
from cornserve.gateway.task_runs.local_app import LocalApp
from cornserve.gateway.task_runs.task_runner import AppCode
from cornserve.limits import Limits
from cornserve_echo.stages import StageRequest
from cornserve_policies.path_table import CellPath
from tests.credentials import CREDENTIALS
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.published_route import publish_route
from tests.unit.policies.chi_square import chi_square_limit
from tests.waiting import until

SOURCE = """
from cornserve import App
from cornserve_echo.stages import StageTask

components = dict.fromkeys(["llm", "encoder", "generator", "vocoder"], 0.0)
app = App(name="stages", paths=[StageTask(seconds=components, concurrency=path + 1) for path in range(3)])
"""

SPEC = AppSpec(source=AppSource(inline=SOURCE))

TYPES = {"text": ["llm"], "encoder+llm": ["encoder", "llm"], "generator+llm": ["generator", "llm"]}

PROBABILITIES: dict[str, tuple[float, dict[str, list[float]]]] = {
    "4-0": (3.0, {"text": [0.5, 0.3, 0.2], "encoder+llm": [0, 1, 0], "generator+llm": [0.1, 0, 0.9]}),
    "4-1": (3.0, {"text": [0.5, 0.3, 0.2], "encoder+llm": [0, 1, 0], "generator+llm": [0.1, 0, 0.9]}),
    "1-0": (0.5, {"text": [1, 0, 0], "encoder+llm": [0.4, 0, 0.6]}),
}


@pytest.fixture
def app() -> App:
    try:
        return load_app("stages", SPEC, "stages_of_the_test")
    finally:
        unload_app("stages_of_the_test")


@pytest.fixture
def plan(app: App) -> RoutePlan:
    """Each cell has an executor group for each path."""
    keys = list(app.executor_specs())
    cells = [
        RouteCell(
            name=name,
            rate=rate,
            replicas=dict.fromkeys(keys, 1),
            groups={key: f"{name}/{path}" for path, key in enumerate(keys)},
            probabilities=probabilities,
        )
        for name, (rate, probabilities) in PROBABILITIES.items()
    ]
    return RoutePlan(types=TYPES, default_type="text", cells=cells)


@pytest_asyncio.fixture(loop_scope="module")
async def pool() -> AsyncIterator[ReplicaPool]:
    pool = ReplicaPool(CREDENTIALS)
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="module")
async def hosted(fork_server: ForkServer) -> AsyncIterator[HostedApp]:
    async def start() -> AppHost:
        return await AppHost.start(fork_server, "stages", SPEC, "stages_of_the_host", Limits())

    app = HostedApp(await start(), start, print)
    yield app
    app.close()


class PlannedGateway:
    """Routes requests of one app without HTTP."""

    def __init__(self, code: AppCode, plan: RoutePlan, pool: ReplicaPool) -> None:
        table = plan.path_table()
        policies = AppPolicies(log_decisions=True)
        groups = {cell.name: cell.groups for cell in plan.cells}
        route = RequestRoute(1, [], {}, plan=table, cell_groups=groups, policies=policies)
        self.served = ServedApp(code, "", "", route, 0)
        self.stats = AppStats()
        self._pool = pool

    def session(self, request_id: str) -> Session:
        deadline = asyncio.get_running_loop().time() + 60
        stats = RequestStats(self.stats)
        ids = RequestIds(request_id, request_id, request_id)
        return Session(
            ids,
            self.served,
            self._pool,
            stats,
            log=RequestLog(AppLogLines(), "app", request_id),
            streams=False,
            arrived_us=0,
            deadline=deadline,
        )

    async def route(self, request_id: str, request: object) -> CellPath:
        """Chooses the route of a request, and counts it, without sending anything to executors."""
        before = self.stats.planned_paths.copy()
        with self.session(request_id) as session:
            await session._choose_path([request])
        (path,) = self.stats.planned_paths - before
        return path


def stage_request(request_type: str) -> StageRequest:
    return StageRequest(items=dict.fromkeys(TYPES[request_type], 1.0))


def requests_of(count: int) -> dict[str, str]:
    """Returns request types by request id: half of the ids are given, half are random."""
    types = [*TYPES] * (count // len(TYPES) + 1)
    return {f"request-{n}" if n % 2 else uuid.uuid4().hex: types[n // 2] for n in range(count)}


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_thousands_of_requests_follow_the_planned_shares(
    app: App, plan: RoutePlan, pool: ReplicaPool, count: int
) -> None:
    gateway = PlannedGateway(LocalApp(app, CurrentApp.of_process()), plan, pool)
    table = plan.path_table()
    requests = requests_of(count)
    for request_id, request_type in requests.items():
        with gateway.session(request_id) as session:
            await session._choose_path([stage_request(request_type)])

    observed, counts = gateway.stats.planned_paths, Counter(requests.values())
    expected = {path: share * counts[path.request_type] for path, share in table.shares()}
    assert observed.keys() == expected.keys()
    for request_type in TYPES:
        means = {path: mean for path, mean in expected.items() if path.request_type == request_type}
        distance = sum((observed[path] - mean) ** 2 / mean for path, mean in means.items())
        assert distance < chi_square_limit(len(means) - 1)
    assert gateway.stats.unknown_types == 0


async def test_a_request_takes_the_same_route_through_every_gateway(
    app: App, plan: RoutePlan, pool: ReplicaPool, hosted: HostedApp
) -> None:
    """One gateway runs the task itself, and the other one in an app host."""
    local = PlannedGateway(LocalApp(app, CurrentApp.of_process()), plan, pool)
    remote = PlannedGateway(hosted, plan, pool)

    for request_id, request_type in requests_of(60).items():
        request = stage_request(request_type)
        native, _ = await hosted.parse(request.model_dump_json().encode())
        assert await local.route(request_id, request) == await remote.route(request_id, native)


async def test_executors_get_the_requests_that_are_routed_to_them(
    app: App, plan: RoutePlan, pool: ReplicaPool, executors: EchoExecutors, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cornserve.decisions")
    specs = app.executor_specs()
    endpoints = {
        group: await executors.replica(specs[key]) for cell in plan.cells for key, group in cell.groups.items()
    }
    for group, endpoint in endpoints.items():
        pool.update_group(group, {endpoint: endpoint})
    gateway = PlannedGateway(LocalApp(app, CurrentApp.of_process()), plan, pool)

    for request_id, request_type in requests_of(120).items():
        with gateway.session(request_id) as session:
            await session.run(stage_request(request_type), JSON)

    sent = Counter[str]()
    for path, count in gateway.stats.planned_paths.items():
        sent[f"{path.cell}/{path.path}"] += count
    done = {group: executors.total(COMPLETED, OK, endpoint) for group, endpoint in endpoints.items()}
    assert {group: count for group, count in done.items() if count} == sent

    decisions = [vars(record)["fields"] for record in caplog.records if record.name == "cornserve.decisions"]
    paths = {line["request_id"]: line for line in decisions if line["event"] == "path"}
    replicas = {line["request_id"]: line for line in decisions if line["event"] == "replica"}
    assert len(paths) == len(replicas) == 120
    for request_id, path in paths.items():
        assert replicas[request_id]["replica"] == endpoints[f"{path['cell']}/{path['path']}"]
        assert (path["reason"], replicas[request_id]["reason"]) == ("plan", "least-loaded")


async def is_served(gateway: httpx.AsyncClient) -> bool:
    return (await gateway.get("/v1/models/stages")).status_code == 200


COMPLETED, OK = "cornserve_executor_invocations_total", {"code": "OK"}


@pytest_asyncio.fixture(loop_scope="module")
async def planned(
    app: App, plan: RoutePlan, store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors
) -> httpx.AsyncClient:
    """Returns a client of a gateway that serves the app, in an app host."""
    specs = app.executor_specs()
    endpoints = {
        group: [await executors.endpoint(specs[key])] for cell in plan.cells for key, group in cell.groups.items()
    }
    await publish_route(store, await store.create(APPS, "stages", SPEC), endpoints, plan=plan)
    await until(lambda: is_served(gateway))
    return gateway


async def test_planned_and_observed_shares_are_exported(planned: httpx.AsyncClient) -> None:
    for _ in range(5):
        response = await planned.post("/v1/apps/stages/invoke", json={"items": {"generator": 1, "llm": 1}, "text": "a"})
        assert response.json()["text"] == "a"

    share = 'cornserve_gateway_planned_share{app="stages",cell="4-0",path="2",type="generator+llm"} 0.45'
    assert await exposes(planned, share)
    lines = (await planned.get("/metrics")).text.splitlines()
    counted = [line for line in lines if line.startswith("cornserve_gateway_planned_path_requests_total{")]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == 5
    assert all('type="generator+llm"' in line and 'cell="4-' in line for line in counted)
    assert await exposes(planned, 'cornserve_gateway_unknown_type_requests_total{app="stages"} 0.0')


async def test_requests_of_unknown_types_take_the_default_type_and_are_counted(planned: httpx.AsyncClient) -> None:
    response = await planned.post("/v1/apps/stages/invoke", json={"items": {"vocoder": 1}})

    assert response.status_code == 200
    assert await exposes(planned, 'cornserve_gateway_unknown_type_requests_total{app="stages"} 1.0')
    assert await exposes(planned, 'type="text"')


async def test_an_invalid_request_gets_the_error_that_it_gets_without_a_plan(planned: httpx.AsyncClient) -> None:
    response = await planned.post("/v1/apps/stages/invoke", json={"items": {"llm": "many"}})

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "items.llm"


FAILING = SOURCE.replace("paths=[", "paths=[FirstPath()] + [").replace(
    "app = App",
    """
from cornserve import Task
from cornserve_echo.stages import StageRequest, StageResult

class FirstPath(Task[StageRequest, StageResult]):
    def invoke(self, request: StageRequest) -> StageResult:
        raise ValueError("the first path is broken")

app = App""",
)


async def test_an_error_of_the_first_path_is_the_error_of_the_request(
    app: App, plan: RoutePlan, store: Store, gateway: httpx.AsyncClient
) -> None:
    probabilities = {"text": [0.0, 1.0, 0.0, 0.0]}
    cells = [cell.model_copy(update={"probabilities": probabilities}) for cell in plan.cells]
    plan = RoutePlan(types=TYPES, default_type="text", cells=cells)
    record = await store.create(APPS, "stages", AppSpec(source=AppSource(inline=FAILING)))
    await publish_route(store, record, {group: [] for cell in cells for group in cell.groups.values()}, plan=plan)

    await until(lambda: is_served(gateway))

    response = await gateway.post("/v1/apps/stages/invoke", json={"items": {"llm": 1}})

    assert response.status_code == 500
    assert "the first path is broken" in response.json()["error"]["message"]
    assert "FirstPath" in response.json()["error"]["message"]


INTERNAL = {"authorization": f"Bearer {CREDENTIALS.secret.token(ARRIVALS_TOKEN)}"}


async def test_arrivals_are_counted_by_type_for_the_controller(planned: httpx.AsyncClient) -> None:
    for items in [{"llm": 1}, {"llm": 1, "generator": 1}, {"llm": 2}, {"vocoder": 1}]:
        await planned.post("/v1/apps/stages/invoke", json={"items": items})

    first, second = [
        GatewayArrivals.model_validate_json((await planned.get(ARRIVALS_PATH, headers=INTERNAL)).content)
        for _ in range(2)
    ]

    assert first.apps == {"stages": {"text": 2, "generator+llm": 1, UNPLANNED_TYPE: 1}}
    assert sum(first.invocations["stages"].values()) >= 4
    assert set(first.tokens["stages"].values()) == {0}
    assert second.process == first.process
    assert second.seconds > first.seconds > 0
