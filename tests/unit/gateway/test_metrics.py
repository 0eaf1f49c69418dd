"""What a gateway counts of the requests that it serves."""

from __future__ import annotations

import httpx2 as httpx
from prometheus_client.parser import text_string_to_metric_families

from cornserve.control.store.base import APPS, Store
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHAT, ECHO
from tests.waiting import until

Sample = tuple[str, frozenset[tuple[str, str]]]


async def samples(gateway: httpx.AsyncClient) -> dict[Sample, float]:
    text = (await gateway.get("/metrics")).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(name: str, **labels: str) -> Sample:
    return f"cornserve_gateway_{name}", frozenset(labels.items())


async def test_requests_are_counted_by_app_status_and_path(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    for fail in (None, None, "boom"):
        await gateway.post("/v1/apps/echo/invoke", json={"text": "a", "fail": fail})

    counted = await samples(gateway)

    assert counted[of("requests_total", app="echo", status="200")] == 2
    assert counted[of("requests_total", app="echo", status="500")] == 1
    assert counted[of("path_requests_total", app="echo", path="0")] == 3
    assert counted[of("e2e_request_latency_seconds_count", app="echo")] == 3
    assert counted[of("requests_running", app="echo")] == 0
    assert counted[of("error_responses_total", status="500", code="internal")] == 1


async def test_the_pieces_of_a_stream_are_timed(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)
    chat = {"model": "parrot", "stream": True, "messages": [{"role": "user", "content": "one two three four"}]}
    await gateway.post("/v1/chat/completions", json=chat)

    counted = await samples(gateway)

    assert counted[of("time_to_first_token_seconds_count", app="parrot")] == 1
    assert counted[of("inter_token_latency_seconds_count", app="parrot")] == 3


async def test_names_that_clients_make_up_are_no_labels(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    refused = of("error_responses_total", status="404", code="model_not_found")
    before = (await samples(gateway)).get(refused, 0)
    for name in ("invented", "made-up"):
        await gateway.post(f"/v1/apps/{name}/invoke", json={"text": "a"})
        await gateway.get(f"/v1/{name}")

    counted = await samples(gateway)

    assert not any("invented" in value or "made-up" in value for _, labels in counted for _, value in labels)
    assert counted[refused] - before == 2


async def test_a_deleted_app_takes_its_series_along(gateway: httpx.AsyncClient, deploy: Deploy, store: Store) -> None:
    await deploy(ECHO)
    await gateway.post("/v1/apps/echo/invoke", json={"text": "a"})
    await store.delete(APPS, "echo")

    async def gone() -> bool:
        return not any(("app", "echo") in labels for _, labels in await samples(gateway))

    await until(gone)


async def test_invocations_are_counted_by_group_replica_and_code(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    for fail in (None, "boom"):
        await gateway.post("/v1/apps/echo/invoke", json={"text": "a", "fail": fail})

    counted = await samples(gateway)

    by_code = {
        dict(labels)["code"]: (dict(labels), value)
        for (name, labels), value in counted.items()
        if name == "cornserve_gateway_invocations_total"
    }
    assert {code: value for code, (_, value) in by_code.items()} == {"OK": 1, "INTERNAL": 1}
    where = {name: value for name, value in by_code["OK"][0].items() if name != "code"}
    assert where["group"].startswith("echo-")
    assert counted[of("invocations_running", **where)] == 0
    assert counted[of("invocation_seconds_count", **where)] == 2
    assert 1 <= counted[of("dispatch_seconds_count", **where)] <= 2
