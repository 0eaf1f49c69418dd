"""`/classify`."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.gateway.endpoints.openai.classification import ClassifyRequest
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import refusal
from tests.unit.gateway.sources import CHAT, CLERK

CLASSIFY = "/classify"


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def clerk(deploy_for_module: Deploy) -> None:
    await deploy_for_module(CLERK)


async def post(gateway: httpx.AsyncClient, **fields: Any) -> Any:
    return (await gateway.post(CLASSIFY, json={"model": "clerk"} | fields)).json()


async def test_each_text_has_its_probabilities_and_label(gateway: httpx.AsyncClient) -> None:
    response = await post(gateway, input=["ab", "abcd"], user="me")

    assert response.pop("id").startswith("classify-")
    assert response.pop("created") > 0
    assert response == {
        "object": "list",
        "model": "clerk",
        "data": [
            {"index": 0, "label": "short", "probs": [0.75, 0.25], "num_classes": 2},
            {"index": 1, "label": None, "probs": [0.5, 0.5], "num_classes": 2},
        ],
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }


@pytest.mark.parametrize(("given", "count"), [("ab", 1), ([1, 2], 1), ([[1, 2], [3]], 2)])
async def test_one_text_and_tokens_are_accepted(gateway: httpx.AsyncClient, given: Any, count: int) -> None:
    assert len((await post(gateway, input=given))["data"]) == count


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({}, "input", "missing field: 'input'"),
        ({"input": "x", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "-1"),
        ({"input": "x", "messages": []}, "messages", "unknown or unsupported field"),
    ],
)
async def test_an_invalid_body_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, fields: dict[str, Any], param: str, message: str
) -> None:
    error = (await post(gateway, **fields))["error"]

    assert message in error["message"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": [""]}, "input[0]", "at least 1 character"),
        ({"input": ["x"] * 2049}, "input", "at most 2048"),
    ],
)
def test_an_invalid_body_names_the_field(fields: dict[str, Any], param: str, message: str) -> None:
    error = refusal(ClassifyRequest.model_validate, {"model": "clerk"} | fields)

    assert message in error.message
    assert error.param == param


async def test_an_app_without_classes_is_a_400(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)
    response = await gateway.post(CLASSIFY, json={"model": "parrot", "input": "x"})

    assert response.status_code == 400
    assert "does not support /classify: call it with POST /v1/chat" in response.json()["error"]["message"]
