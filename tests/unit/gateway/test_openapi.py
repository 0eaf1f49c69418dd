"""`/openapi.json` describes all operations, and no request generated from it causes an internal error."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHAT, ECHO


@pytest_asyncio.fixture(loop_scope="module")
async def document(gateway: httpx.AsyncClient) -> dict[str, Any]:
    document: dict[str, Any] = (await gateway.get("/openapi.json")).json()
    return document


async def test_every_operation_with_a_body_describes_it(document: dict[str, Any]) -> None:
    operations = {
        f"{method} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in ("post", "put") and not path.endswith(("/restart", "/kill"))
    }

    assert operations
    assert [name for name, operation in operations.items() if "requestBody" not in operation] == []


async def test_every_reference_has_a_target(document: dict[str, Any]) -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [reference for value in node.values() for reference in references(value)]
        return [reference for value in node for reference in references(value)] if isinstance(node, list) else []

    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= schemas


@pytest.mark.parametrize("examples", [1, pytest.param(8, marks=pytest.mark.slow)])
async def test_requests_generated_from_the_document_never_cause_a_500(
    gateway: httpx.AsyncClient,
    deploy: Deploy,
    document: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    examples: int,
) -> None:
    """Sends this number of requests to each operation."""
    import schemathesis  # takes a second

    caplog.set_level(logging.ERROR)
    await deploy(ECHO)
    await deploy(CHAT)
    url = str(gateway.base_url)
    schema = schemathesis.openapi.from_dict(document)
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    sent: set[str] = set()

    def send_examples(operation: Any) -> None:
        cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode])

        @seed(20261121)
        @settings(
            max_examples=examples,
            phases=[Phase.generate],
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def send(case: Any) -> None:
            response = case.call(base_url=url, timeout=20)
            assert response.status_code < 500, case.as_curl_command()
            sent.add(operation.label)

        send()

    finite = [each for each in operations if not each.path.endswith("/events")]  # Events are endless streams.
    for operation in finite:
        await asyncio.to_thread(send_examples, operation)

    assert len(sent) == len(finite) >= 43
    assert caplog.records == []
    assert (await gateway.post("/v1/apps/echo/invoke", json={"text": "a b"})).json()["words_sent"] == 2
