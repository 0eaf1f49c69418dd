"""The gateway's metrics of requests and invocations."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cornserve.control.store.base import APPS, Store
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHAT, ECHO, SPEAKER, SPEAKING_PARROT
from tests.waiting import until

Sample = tuple[str, frozenset[tuple[str, str]]]


async def samples(gateway: httpx.AsyncClient) -> dict[Sample, float]:
    text = (await gateway.get("/metrics")).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def sample(name: str, **labels: str) -> Sample:
    return f"cornserve_gateway_{name}", frozenset(labels.items())


async def test_requests_are_counted_by_app_status_and_path(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    errors = sample("error_responses_total", status="500", code="internal")
    before = (await samples(gateway)).get(errors, 0)
    for fail in (None, None, "boom"):
        await gateway.post("/v1/apps/echo/invoke", json={"text": "a", "fail": fail})

    counted = await samples(gateway)

    assert counted[sample("requests_total", app="echo", status="200")] == 2
    assert counted[sample("requests_total", app="echo", status="500")] == 1
    assert counted[sample("path_requests_total", app="echo", path="0")] == 3
    assert counted[sample("e2e_request_latency_seconds_count", app="echo")] == 3
    assert counted[sample("requests_running", app="echo")] == 0
    assert counted[errors] - before == 1


async def test_the_chunks_of_a_stream_are_timed(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)
    chat = {"model": "parrot", "stream": True, "messages": [{"role": "user", "content": "one two three four"}]}
    await gateway.post("/v1/chat/completions", json=chat)

    counted = await samples(gateway)

    assert counted[sample("time_to_first_token_seconds_count", app="parrot")] == 1
    assert counted[sample("inter_token_latency_seconds_count", app="parrot")] == 3


@pytest.mark.parametrize(
    ("source", "app", "path", "body"),
    [
        (SPEAKER, "speaker", "/v1/audio/speech", {"input": "corn"}),
        (
            SPEAKING_PARROT,
            "speaking-parrot",
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "one two"}],
                "modalities": ["text", "audio"],
                "audio": {"voice": "ethan", "format": "pcm16"},
                "stream": True,
            },
        ),
    ],
)
async def test_the_first_audio_of_a_stream_is_timed(
    gateway: httpx.AsyncClient, deploy: Deploy, source: str, app: str, path: str, body: dict[str, Any]
) -> None:
    await deploy(source)
    response = await gateway.post(path, json=body | {"model": app})

    assert response.status_code == 200
    assert (await samples(gateway))[sample("time_to_first_audio_seconds_count", app=app)] == 1


async def test_unknown_app_names_do_not_become_labels(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    unknown_model = sample("error_responses_total", status="404", code="model_not_found")
    before = (await samples(gateway)).get(unknown_model, 0)
    for name in ("invented", "made-up"):
        await gateway.post(f"/v1/apps/{name}/invoke", json={"text": "a"})
        await gateway.get(f"/v1/{name}")

    counted = await samples(gateway)

    assert not any("invented" in value or "made-up" in value for _, labels in counted for _, value in labels)
    assert counted[unknown_model] - before == 2


async def test_the_series_of_a_deleted_app_are_removed(
    gateway: httpx.AsyncClient, deploy: Deploy, store: Store
) -> None:
    await deploy(ECHO)
    await gateway.post("/v1/apps/echo/invoke", json={"text": "a"})
    await store.delete(APPS, "echo")

    async def is_removed() -> bool:
        return not any(("app", "echo") in labels for _, labels in await samples(gateway))

    await until(is_removed)


async def test_invocations_are_counted_by_group_replica_and_code(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    before = await samples(gateway)
    for fail in (None, "boom"):
        await gateway.post("/v1/apps/echo/invoke", json={"text": "a", "fail": fail})

    counted = await samples(gateway)

    by_code = {
        dict(labels)["code"]: (dict(labels), value)
        for (name, labels), value in counted.items()
        if name == "cornserve_gateway_invocations_total" and (name, labels) not in before
    }
    assert {code: value for code, (_, value) in by_code.items()} == {"OK": 1, "INTERNAL": 1}
    labels = {name: value for name, value in by_code["OK"][0].items() if name != "code"}
    assert labels["group"].startswith("echo-")
    assert counted[sample("invocations_running", **labels)] == 0
    assert counted[sample("invocation_seconds_count", **labels)] == 2
    assert 1 <= counted[sample("dispatch_seconds_count", **labels)] <= 2
