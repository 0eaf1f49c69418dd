"""`/v1/images/generations`, through the official client and raw JSON."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, BadRequestError
from openai.types import ImageGenCompletedEvent, ImageGenPartialImageEvent

from cornserve.gateway.endpoints.openai.images import CreateImageRequest
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import CHAT, PAINTER

GENERATIONS = "/v1/images/generations"


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def painter(deploy_for_module: Deploy) -> None:
    await deploy_for_module(PAINTER)


async def test_the_official_client_gets_images(openai: AsyncOpenAI) -> None:
    response = await openai.images.generate(
        model="painter",
        prompt="corn",
        n=2,
        size="1536x1024",
        output_format="webp",
        output_compression=80,
        response_format="b64_json",
        background="opaque",
        extra_body={"seed": 7, "num_inference_steps": 20, "true_cfg_scale": 2, "negative_prompt": "maize"},
    )

    expected = (
        "prompt=corn negative_prompt=maize n=2 size=1536x1024 seed=7 num_inference_steps=20 true_cfg_scale=2.0 "
        "output_format=webp output_compression=80"
    )
    assert response.data is not None
    assert [b64decode(image.b64_json or "").decode() for image in response.data] == [expected] * 2
    assert [image.model_dump()["seed"] for image in response.data] == [7, 8]
    assert (response.size, response.output_format, response.background) == ("1536x1024", "webp", "opaque")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (5, 16, 21)


async def test_omitted_and_automatic_fields_have_defaults(openai: AsyncOpenAI) -> None:
    response = await openai.images.generate(
        model="painter", prompt="x", size="auto", quality="auto", user="me", safety_identifier="me"
    )

    assert response.data is not None
    assert [b64decode(image.b64_json or "") for image in response.data] == [b"prompt=x"]
    assert (response.size, response.output_format) == ("1024x1024", "png")


async def test_a_stream_has_the_events_of_the_official_client(openai: AsyncOpenAI) -> None:
    stream = await openai.images.generate(
        model="painter", prompt="corn", size="1536x1024", output_format="jpeg", partial_images=2, stream=True
    )
    *previews, last = [event async for event in stream]

    assert [type(event) for event in previews] == [ImageGenPartialImageEvent] * 4
    assert [event.b64_json for event in previews] == [
        *("prompt=corn", "size=1536x1024", "output_format=jpeg", "partial_images=2")
    ]
    assert [getattr(event, "partial_image_index", None) for event in previews] == [0, 1, 2, 3]
    assert isinstance(last, ImageGenCompletedEvent)
    text = "prompt=corn size=1536x1024 output_format=jpeg partial_images=2"
    assert (b64decode(last.b64_json).decode(), last.usage.total_tokens) == (text, 21)
    assert {(event.output_format, event.size) for event in [*previews, last]} == {("jpeg", "1536x1024")}


async def test_a_stream_has_progress_only_if_the_request_asks_for_it(gateway: httpx.AsyncClient) -> None:
    body = {"model": "painter", "prompt": "corn", "stream": True}
    without = await gateway.post(GENERATIONS, json=body)
    response = await gateway.post(GENERATIONS, json=body | {"progress": True})

    names = [line.removeprefix("event: ") for line in response.text.splitlines() if line.startswith("event: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line[:5] == "data:"]
    assert "progress" not in without.text
    assert [event["type"] for event in events] == names
    assert events[0] == {"type": "image_generation.progress", "step": 11, "steps": 99, "image": 0}


async def test_the_events_of_several_images_contain_their_positions(gateway: httpx.AsyncClient) -> None:
    body = {"model": "painter", "prompt": "corn", "stream": True, "n": 3, "seed": 5}
    response = await gateway.post(GENERATIONS, json=body)

    events = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line[:5] == "data:"]
    completed = [(event["image"], event["seed"]) for event in events if event["type"].endswith("completed")]
    assert completed == [(0, 5), (1, 6), (2, 7)]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"prompt": None}, "prompt", "missing field: 'prompt'"),
        ({"n": 100}, "n", "less than or equal to 10, not 100"),
        ({"partial_images": 1}, "partial_images", "is set, but stream is false"),
        ({"style": "vivid"}, "style", "unknown or unsupported field"),
        ({"moderation": "low"}, "moderation", "nothing moderates requests and responses"),
    ],
)
async def test_an_invalid_request_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, fields: dict[str, Any], param: str | None, message: str
) -> None:
    response = await gateway.post(GENERATIONS, json={"model": "painter", "prompt": "corn"} | fields)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"prompt": ""}, "prompt", "at least 1 character"),
        ({"n": 0}, "n", "greater than or equal to 1, not 0"),
        ({"size": "7x7"}, "size", "must be WIDTHxHEIGHT, both multiples of 16 from 16 to 4096, such as 1024x1024"),
        ({"size": "8192x16"}, "size", "from 16 to 4096"),
        ({"size": "large"}, "size", "must be WIDTHxHEIGHT"),
        ({"size": 512}, "size", "string"),
        ({"num_inference_steps": 0}, "num_inference_steps", "greater than or equal to 1, not 0"),
        ({"num_inference_steps": 1000}, "num_inference_steps", "less than or equal to 200"),
        ({"true_cfg_scale": 0.5}, "true_cfg_scale", "greater than or equal to 1"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"seed": 2**63}, "seed", "less than or equal to"),
        ({"response_format": "url"}, "response_format", "'b64_json', not 'url'"),
        ({"output_format": "gif"}, "output_format", "'png', 'jpeg' or 'webp', not 'gif'"),
        ({"output_compression": 50}, "output_compression", "set output_format to jpeg or webp"),
        ({"negative_prompt": "x", "true_cfg_scale": 1}, "negative_prompt", "set a true_cfg_scale above 1"),
        ({"quality": "hd"}, "quality", "'high', not 'hd'"),
        ({"quality": "low", "num_inference_steps": 9}, "quality", "num_inference_steps is also set: remove one"),
        ({"background": "transparent"}, "background", "'auto' or 'opaque', not 'transparent'"),
        ({"stream": True, "partial_images": 4}, "partial_images", "less than or equal to 3"),
        ({"progress": True}, "progress", "is set, but stream is false"),
    ],
)
def test_an_invalid_request_names_the_field(fields: dict[str, Any], param: str | None, message: str) -> None:
    error = refusal(CreateImageRequest.model_validate, {"model": "painter", "prompt": "corn"} | fields)

    assert message in error.message
    assert error.param == param


async def test_an_app_without_images_is_a_400(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(CHAT)

    with pytest.raises(BadRequestError, match="does not support /v1/images/generations: call it with POST /v1/chat"):
        await openai.images.generate(model="parrot", prompt="corn")
    with pytest.raises(BadRequestError, match="call it with POST /v1/images/generations"):
        await openai.embeddings.create(model="painter", input="x")
