"""`/v1/embeddings`, through the official client."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from struct import pack

import httpx2 as httpx
import openai as openai_client
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from cornserve.gateway.endpoints.openai.embeddings import CreateEmbeddingRequest
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, image_file
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import CHAT, VECTORS


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def apps(deploy_for_module: Deploy) -> None:
    await deploy_for_module(VECTORS)


@pytest.fixture
def lengths(openai: AsyncOpenAI) -> AsyncOpenAI:
    return openai


@pytest.mark.parametrize(
    ("given", "expected"),
    [("four", [4]), (["a", "four"], [1, 4]), ([1, 2, 3], [3]), ([[1], [1, 2]], [1, 2])],
    ids=["text", "texts", "tokens", "lists-of-tokens"],
)
async def test_each_input_gets_a_vector(
    lengths: AsyncOpenAI, given: str | list[str] | list[int] | list[list[int]], expected: list[int]
) -> None:
    response = await lengths.embeddings.create(model="lengths", input=given)

    assert [item.embedding for item in response.data] == [[length, length] for length in expected]
    assert [item.index for item in response.data] == list(range(len(expected)))
    assert response.usage.prompt_tokens == response.usage.total_tokens == 7


@pytest.mark.parametrize(
    ("format", "embedding"), [("float", [4.0, 4.0, 4.0]), ("base64", b64encode(pack("<fff", 4, 4, 4)).decode())]
)
async def test_vectors_have_the_requested_encoding(
    gateway: httpx.AsyncClient, lengths: AsyncOpenAI, format: str, embedding: object
) -> None:
    body = {"model": "lengths", "input": "four", "encoding_format": format, "dimensions": 3, "user": "me"}
    (item,) = (await gateway.post("/v1/embeddings", json=body)).json()["data"]

    assert item == {"object": "embedding", "index": 0, "embedding": embedding}


async def test_millions_of_numbers_do_not_block_other_requests(
    gateway: httpx.AsyncClient, lengths: AsyncOpenAI
) -> None:
    body = {"model": "lengths", "input": ["four"] * 512, "dimensions": 1024}
    now = asyncio.get_running_loop().time
    begun = now()
    asking = asyncio.create_task(gateway.post("/v1/embeddings", json=body))
    longest, last = 0.0, begun
    while not asking.done():
        await asyncio.sleep(0)
        longest, last = max(longest, now() - last), now()

    assert (await asking).status_code == 200
    assert longest < (last - begun) / 2


async def test_an_app_without_embeddings_is_a_400(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(CHAT)

    with pytest.raises(
        openai_client.BadRequestError, match="does not support /v1/embeddings: call it with POST /v1/chat"
    ):
        await openai.embeddings.create(model="parrot", input="x")


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"input": None}, "messages", "give either input or messages"),
        ({"input": ""}, "input", "at least 1 character"),
        ({"banana": 1}, "banana", "unknown or unsupported field"),
    ],
)
async def test_an_invalid_body_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, change: dict[str, object], param: str, message: str
) -> None:
    response = await gateway.post("/v1/embeddings", json={"model": "lengths", "input": "x"} | change)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "messages", "give either input or messages"),
        ({"input": None, "messages": []}, "messages", "at least 1 item"),
        ({"input": None, "messages": [{"role": "user"}]}, "messages[0].content", "missing"),
        ({"input": []}, "input", "at least 1 item"),
        ({"input": ["x", [1]]}, "input[1]", "valid string"),
        ({"input": [1, 1.5]}, "input[1]", "valid integer"),
        ({"input": [[1], []]}, "input[1]", "at least 1 item"),
        ({"input": ["x"] * 2049}, "input", "at most 2048"),
        ({"encoding_format": "hex"}, "encoding_format", "not 'hex'"),
        ({"dimensions": 0}, "dimensions", "greater than or equal to 1"),
        ({"dimensions": "3"}, "dimensions", "valid integer"),
    ],
)
def test_an_invalid_body_names_the_field(change: dict[str, object], param: str, message: str) -> None:
    error = refusal(CreateEmbeddingRequest.model_validate, {"model": "lengths", "input": "x"} | change)

    assert message in error.message
    assert error.param == param


@pytest.mark.usefixtures("lengths")
async def test_a_chat_with_media_becomes_one_vector(gateway: httpx.AsyncClient) -> None:
    def request(png: bytes) -> dict[str, object]:
        image = {"type": "image_url", "image_url": {"url": data_url(png)}}
        content = [image, {"type": "text", "text": "What is it?"}]
        return {"model": "lengths", "messages": [{"role": "user", "content": content}]}

    response = await gateway.post("/v1/embeddings", json=request(image_file()))
    invalid = await gateway.post("/v1/embeddings", json=request(image_file()[:-20]))

    (item,) = response.json()["data"]
    assert item["embedding"] == [len(image_file())] * 2
    error = invalid.json()["error"]
    assert (invalid.status_code, error["param"]) == (400, "messages[0].content[0].image_url")
    assert error["code"] == "invalid_image"
