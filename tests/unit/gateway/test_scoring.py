"""`/v1/rerank` and `/v1/score`."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from pydantic import BaseModel

from cornserve.gateway.endpoints.openai.scoring import RerankRequest, ScoreRequest
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import refusal
from tests.unit.gateway.sources import CHAT, JUDGE

RERANK, SCORE = "/v1/rerank", "/v1/score"
REQUESTS: dict[str, type[BaseModel]] = {RERANK: RerankRequest, SCORE: ScoreRequest}


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def judge(deploy_for_module: Deploy) -> None:
    await deploy_for_module(JUDGE)


async def post(gateway: httpx.AsyncClient, path: str, **fields: Any) -> Any:
    return (await gateway.post(path, json={"model": "judge"} | fields)).json()


async def test_the_most_relevant_documents_come_first(gateway: httpx.AsyncClient) -> None:
    ranking = await post(gateway, RERANK, query="ab", documents=["x", "abcd", "abc"], top_n=2, user="me")

    assert ranking.pop("id").startswith("rerank-")
    assert ranking == {
        "model": "judge",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
        "results": [
            {"index": 1, "document": {"text": "abcd"}, "relevance_score": 4.25},
            {"index": 2, "document": {"text": "abc"}, "relevance_score": 3.25},
        ],
    }


async def test_the_documents_can_be_left_out(gateway: httpx.AsyncClient) -> None:
    further = {"return_documents": False, "rank_fields": ["text"], "priority": 0, "max_chunks_per_doc": None}
    ranking = await post(gateway, RERANK, query="ab", documents=["x", "abcd"], **further)

    assert ranking["results"] == [{"index": 1, "relevance_score": 4.25}, {"index": 0, "relevance_score": 1.25}]


@pytest.mark.parametrize(("alias", "path"), [("/rerank", RERANK), ("/v2/rerank", RERANK), ("/score", SCORE)])
async def test_the_paths_of_vllm_are_served(gateway: httpx.AsyncClient, alias: str, path: str) -> None:
    fields = {"documents": ["x", "abcd"]} | ({"query": "ab"} if path == RERANK else {"queries": "ab"})
    expected, found = [await post(gateway, each, **fields) for each in (path, alias)]

    assert {**found, "id": "", "created": 0} == {**expected, "id": "", "created": 0}


@pytest.mark.parametrize(
    "document",
    [{"text": "abcd"}, {"content": [{"type": "text", "text": "abcd"}]}],
    ids=["the objects of Cohere and Jina", "the objects of vLLM"],
)
async def test_texts_may_be_objects(gateway: httpx.AsyncClient, document: dict[str, Any]) -> None:
    ranking = await post(gateway, RERANK, query={"text": "ab"}, documents=["x", document])
    scored = [await post(gateway, SCORE, queries="ab", items=items) for items in (document, [document])]

    assert ranking["results"][0] == {"index": 1, "document": {"text": "abcd"}, "relevance_score": 4.25}
    assert [each["data"][0]["score"] for each in scored] == [4.25, 4.25]


async def test_equal_documents_keep_their_order(gateway: httpx.AsyncClient) -> None:
    ranking = await post(gateway, RERANK, query="ab", documents=["x", "y", "z"])

    assert [result["index"] for result in ranking["results"]] == [0, 1, 2]


@pytest.mark.parametrize(
    "names", [("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")]
)
@pytest.mark.parametrize(
    ("query", "documents", "expected"),
    [("ab", "x", [1.25]), ("ab", ["x", "abc"], [1.25, 3.25]), (["", "abcd"], ["x", "abc"], None)],
)
async def test_one_or_many_queries_are_compared(
    gateway: httpx.AsyncClient,
    names: tuple[str, str],
    query: str | list[str],
    documents: str | list[str],
    expected: list[float] | None,
) -> None:
    response = await post(gateway, SCORE, **{names[0]: query, names[1]: documents})

    if expected is None:
        assert response["error"]["param"] == f"{names[0]}[0]"
        return
    assert response["object"] == "list"
    assert response["data"] == [
        {"index": index, "object": "score", "score": score} for index, score in enumerate(expected)
    ]


@pytest.mark.parametrize(
    ("path", "fields", "param", "message"),
    [
        (RERANK, {"documents": ["x"]}, "query", "missing field: 'query'"),
        (RERANK, {"query": "", "documents": ["x"]}, "query", "at least 1 character"),
        (RERANK, {"query": "x", "documents": ["x"], "max_chunks_per_doc": 1}, "max_chunks_per_doc", "use max_tokens"),
        (SCORE, {"queries": "x", "text_1": "x", "documents": ["x"]}, "text_1", "unknown or unsupported field"),
        (SCORE, {"queries": ["x", "y"], "documents": ["x"]}, "queries", "2 for 1 documents: give one query, or one"),
    ],
)
async def test_an_invalid_body_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, path: str, fields: dict[str, Any], param: str | None, message: str
) -> None:
    error = (await post(gateway, path, **fields))["error"]

    assert message in error["message"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["code"]


@pytest.mark.parametrize(
    ("path", "fields", "param", "message"),
    [
        (RERANK, {"query": ["x"], "documents": ["x"]}, "query", "valid string"),
        (RERANK, {"query": "x", "documents": []}, "documents", "at least 1 item"),
        (RERANK, {"query": "x", "documents": ["x", 1]}, "documents[1]", "string"),
        (RERANK, {"query": "x", "documents": [{"text": 1}]}, "documents[0]", 'give a text, {"text": "…"}'),
        (RERANK, {"query": "x", "documents": ["x", {"text": "x", "title": "y"}]}, "documents[1]", "other fields"),
        (RERANK, {"query": "x", "documents": [{"image": "https://x/y.png"}]}, "documents[0]", "media"),
        (SCORE, {"queries": {"content": []}, "documents": ["x"]}, "queries[0]", "give a text"),
        (RERANK, {"query": "x", "documents": ["x"] * 2049}, "documents", "at most 2048"),
        (RERANK, {"query": "x", "documents": ["x"], "top_n": -1}, "top_n", "greater than or equal to 0"),
        (RERANK, {"query": "x", "documents": ["x"], "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "-1"),
        (RERANK, {"query": "x", "documents": ["x"], "rank_fields": ["title"]}, "rank_fields[0]", "must be 'text'"),
        (RERANK, {"query": "x", "documents": ["x"], "priority": 1}, "priority", "must be 0, not 1"),
        (SCORE, {"documents": ["x"]}, "queries", "missing field: 'queries'"),
        (SCORE, {"queries": "x" * 20_000, "documents": ["x"] * 2048}, "documents", "characters: send at most 32000000"),
    ],
)
def test_an_invalid_body_names_the_field(path: str, fields: dict[str, Any], param: str | None, message: str) -> None:
    error = refusal(REQUESTS[path].model_validate, {"model": "judge"} | fields)

    assert message in error.message
    assert error.param == param


async def test_an_app_without_scores_is_a_400(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)
    response = await gateway.post(RERANK, json={"model": "parrot", "query": "x", "documents": ["x"]})

    assert response.status_code == 400
    assert "does not support /v1/rerank: call it with POST /v1/chat" in response.json()["error"]["message"]
