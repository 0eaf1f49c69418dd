"""`/openapi.json` tells what the gateway takes, and whatever a machine makes of it never breaks the gateway."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx2 as httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHAT, ECHO

EXAMPLES = 8
"""Of each call."""


@pytest.fixture
async def document(gateway: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await gateway.get("/openapi.json")).json()
    return answer


async def test_every_call_with_a_body_says_what_it_takes(document: dict[str, Any]) -> None:
    calls = {
        f"{method} {path}": call
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        if method in ("post", "put")
    }

    assert calls
    assert [name for name, call in calls.items() if "requestBody" not in call] == []


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [it for value in node.values() for it in references(value)]
        return [it for value in node for it in references(value)] if isinstance(node, list) else []

    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= schemas


async def test_what_the_document_allows_and_what_it_does_not_never_breaks_the_gateway(
    gateway: httpx.AsyncClient, deploy: Deploy, document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    await deploy(ECHO)
    await deploy(CHAT)
    url = str(gateway.base_url)
    schema = schemathesis.openapi.from_dict(document)
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    sent: set[str] = set()

    def try_out(operation: Any) -> None:
        cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode])

        @seed(20261121)
        @settings(
            max_examples=EXAMPLES,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def call(case: Any) -> None:
            response = case.call(base_url=url, timeout=20)
            assert response.status_code < 500, case.as_curl_command()
            sent.add(operation.label)

        call()

    for operation in operations:
        if not operation.path.endswith("/events"):  # endless
            await asyncio.to_thread(try_out, operation)

    assert len(sent) == len(operations) - 1
    assert caplog.records == []
    assert (await gateway.post("/v1/apps/echo/invoke", json={"text": "a b"})).json()["words_sent"] == 2
