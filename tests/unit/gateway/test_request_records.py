"""The timelines of the last, the slow and the failed requests."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import httpx2 as httpx
import pytest

from cornserve.app.overview import ReadGateways, RequestList, RequestTimeline
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.observe.request_records import MAX_APPS, MAX_REQUESTS, RequestRecords, merged_requests
from cornserve.gateway.observe.request_spans import MAX_SPANS
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO
from tests.unit.gateway.test_live import INTERNAL
from tests.unit.gateway.test_tensors import POST

DEAD: Final = "127.0.0.1:1"
"""The address of a gateway that does not run."""


async def get(gateway: httpx.AsyncClient, path: str) -> dict[str, Any]:
    response = await gateway.get(path)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_request_has_a_timeline_without_its_content(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(POST)
    id = "of/the:client"
    body = {"texts": ["a secret", "b"]}
    reply = await gateway.post("/v1/apps/post/invoke", json=body, headers={"x-request-id": id})
    assert reply.status_code == 200

    found = await gateway.get("/admin/v1/requests/timeline", params={"id": id})
    request = RequestTimeline.model_validate_json(found.content)

    assert "secret" not in found.text
    assert (request.id, request.app, request.operation, request.status) == (id, "post", "/v1/apps/post/invoke", 200)
    spans = {span.index: span for span in request.spans if span.kind == "invocation"}
    assert {index: span.after for index, span in spans.items()} == {0: [], 1: [], 2: [0, 1]}
    for span in spans.values():
        assert span.end is not None
        assert span.queued is not None
        assert 0 <= span.queued <= span.start <= span.end <= request.seconds
        assert (span.code, span.attempt) == ("OK", 0)
        assert span.group
        assert span.replica.startswith("replica-")
    assert any(span.kind == "run" for span in request.spans)


async def test_failed_and_slow_requests_are_listed_by_app(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    for fail in (None, "boom"):
        await gateway.post("/v1/apps/echo/invoke", json={"text": "a", "fail": fail})

    found = RequestList.model_validate(await get(gateway, "/admin/v1/requests?app=echo"))
    other = RequestList.model_validate(await get(gateway, "/admin/v1/requests?app=other"))

    assert [request.status for request in found.recent] == [500, 200]
    assert [(request.status, request.error) for request in found.failed] == [(500, "internal")]
    assert [request.status for request in found.slow] == [200]
    assert (other.recent, other.slow, other.failed) == ([], [], [])


@pytest.mark.parametrize("id", ["none", ".", "..", "../apps/echo", "a/../b", "/", "%2e%2e", "<b>", "ü", "x" * 128])
async def test_an_unknown_request_has_no_timeline(gateway: httpx.AsyncClient, id: str) -> None:
    response = await gateway.get("/admin/v1/requests/timeline", params={"id": id})

    assert (response.status_code, response.json()["error"]["code"]) == (404, "request_not_found")


@pytest.mark.parametrize("parameters", [{}, {"id": ""}, {"id": "x" * 129}])
async def test_a_timeline_needs_an_id(gateway: httpx.AsyncClient, parameters: dict[str, str]) -> None:
    response = await gateway.get("/admin/v1/requests/timeline", params=parameters)

    assert (response.status_code, response.json()["error"]["param"]) == (400, "id")


@pytest.mark.parametrize("id", [".", "..", "../apps/echo", "a//b", "/"])
async def test_requests_have_timelines_by_any_id_of_their_clients(
    gateway: httpx.AsyncClient, deploy: Deploy, id: str
) -> None:
    await deploy(ECHO)
    await gateway.post("/v1/apps/echo/invoke", json={"text": "a"}, headers={"x-request-id": id})

    found = await get(gateway, f"/admin/v1/requests/timeline?{urlencode({'id': id})}")

    assert (found["id"], found["app"]) == (id, "echo")


@with_gateway_options(GatewayOptions(other_gateways=(DEAD,)))
async def test_figures_name_the_gateways_that_do_not_answer(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    await gateway.post("/v1/apps/echo/invoke", json={"text": "a"}, headers={"x-request-id": "known"})

    for path in ("overview", "apps/echo/live", "apps/echo/series", "costs", "requests", "requests/timeline?id=known"):
        gateways = ReadGateways.model_validate((await get(gateway, f"/admin/v1/{path}"))["gateways"])
        assert (path, gateways.read, [each.gateway for each in gateways.missing]) == (path, 1, [DEAD])
    unknown = (await gateway.get("/admin/v1/requests/timeline?id=unknown")).json()["error"]
    assert (unknown["code"], DEAD in unknown["message"]) == ("request_not_found", True)


async def test_gateways_send_each_other_their_requests(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    await gateway.post("/v1/apps/echo/invoke", json={"text": "a"}, headers={"x-request-id": "shared/id"})

    listed = await gateway.get("/internal/v1/live/requests?app=echo", headers=INTERNAL)
    one = await gateway.get("/internal/v1/live/requests/timeline?id=shared/id", headers=INTERNAL)

    assert [request["id"] for request in listed.json()["recent"]] == ["shared/id"]
    assert [request["app"] for request in one.json()["requests"]] == ["echo"]


def add(records: RequestRecords, app: str, number: int, status: int = 200) -> None:
    stats = GatewayMetrics().new_request(app)
    records.add(stats, app, f"{app}-{number}", "/v1/chat/completions", float(number), status, "")


def test_a_bounded_number_of_requests_is_kept() -> None:
    records = RequestRecords(clock=lambda: 2.0 * MAX_REQUESTS)
    for number in range(2 * MAX_REQUESTS):
        add(records, "chat", number)
        add(records, "chat", number, status=500)

    found = records.select("chat")

    assert (len(found.recent), len(found.slow), len(found.failed)) == (MAX_REQUESTS,) * 3
    assert found.recent[0].id == f"chat-{2 * MAX_REQUESTS - 1}"
    for number in range(MAX_APPS):
        add(records, f"app-{number}", 0)
    assert records.select("chat").recent == []


def test_a_bounded_number_of_spans_is_kept() -> None:
    stats = GatewayMetrics().new_request("chat")
    begun = [
        stats.begin_attempt("llm", "llm", "llm-0", index=index, attempt=0, after=[], queued=0.0)
        for index in range(MAX_SPANS + 1)
    ]
    stats.record_run(0.1)

    assert begun[-1] is None
    assert len(stats.spans) == MAX_SPANS


@pytest.mark.parametrize(("now", "slow"), [(3599.0, ["chat-0"]), (3600.0, [])])
def test_slow_requests_are_listed_for_an_hour(now: float, slow: list[str]) -> None:
    records = RequestRecords(clock=lambda: now)
    add(records, "chat", 0)

    found = records.select("chat")

    assert [request.id for request in found.slow] == slow
    assert [request.id for request in found.recent] == ["chat-0"]


def test_the_requests_of_all_gateways_are_merged() -> None:
    lists = []
    for number in (1, 3, 2):
        records = RequestRecords()
        add(records, "chat", number)
        lists.append(records.select(None))

    merged = merged_requests(lists, ReadGateways(read=3))

    assert [request.time for request in merged.recent] == [3.0, 2.0, 1.0]
    assert merged.gateways.read == 3
