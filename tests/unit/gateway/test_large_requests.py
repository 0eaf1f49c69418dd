"""The limits of large requests, and their share of the event loop's time."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from functools import partial

import httpx2 as httpx
import pytest

from cornserve.gateway.http.large_work import LargeWork
from cornserve.limits import MIB, Limits
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, png_of_size
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import CHAT, ECHO, SEER

CHATS = "/v1/chat/completions"


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    return GatewayOptions(Limits(text_mib=1, json_values=10_000))


def large_png(size: int) -> bytes:
    """Returns a PNG file of about this size."""
    image = bytearray(png_of_size(8, 6))
    image[-12:-12] = size.to_bytes(4, "big") + b"tEXt" + bytes(size + 4)
    return bytes(image)


def chat(model: str, content: object, **fields: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **fields}


def part(image: bytes) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": data_url(image)}}


@pytest.mark.parametrize(
    "path", [CHATS, "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/apps/parrot/invoke"]
)
async def test_text_beyond_the_limit_is_rejected(gateway: httpx.AsyncClient, deploy: Deploy, path: str) -> None:
    await deploy(CHAT)

    response = await gateway.post(path, json=chat("parrot", "x" * MIB))

    assert response.status_code == 413
    assert "outside of images (limit text-mib=1, see `cornserve up --limit`)" in response.json()["error"]["message"]


async def test_images_do_not_count_as_text(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(SEER)
    image, text = large_png(3 * MIB), {"type": "text", "text": "x" * (MIB // 2)}

    response = await gateway.post(CHATS, json=chat("seer", [part(image), text, part(image)]))
    sent = {"type": "input_image", "detail": "auto", "image_url": data_url(image)}
    items = [{"role": "user", "content": [sent, {"type": "input_text", "text": text["text"]}]}]
    responded = await gateway.post("/v1/responses", json={"model": "seer", "input": items})
    native = {"messages": chat("seer", [part(image), text])["messages"]}
    invoked = await gateway.post("/v1/apps/seer/invoke", json=native, headers={"accept": "text/event-stream"})

    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"].count(f"PNG:8x6:{len(image)}:") == 2
    assert f"PNG:8x6:{len(image)}:" in invoked.text
    assert f"PNG:8x6:{len(image)}:" in responded.text


async def test_images_of_anthropics_api_do_not_count_as_text(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(SEER)
    image = large_png(3 * MIB)
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(image).decode()}
    blocks = [{"type": "image", "source": source}] * 2

    response = await gateway.post("/v1/messages", json=chat("seer", blocks, max_tokens=1))

    assert response.json()["content"][0]["text"].count(f"PNG:8x6:{len(image)}:") == 2


async def test_a_large_url_outside_of_an_image_part_counts_as_text(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(SEER)
    similar = ({"image_url": {"url": data_url(large_png(size))}} for size in (100_000, MIB))

    small, large = [
        await gateway.post(CHATS, json=chat("seer", "hello", chat_template_kwargs=fields)) for fields in similar
    ]

    assert small.json()["error"]["code"] == "unused_field"
    assert large.status_code == 413
    assert "limit text-mib=1, " in large.json()["error"]["message"]


async def test_an_image_elsewhere_does_not_make_the_images_of_parts_text(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(SEER)
    image = large_png(3 * MIB)
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(image).decode()}
    similar = ({"image_url": data_url(large_png(size))} for size in (100_000, MIB))

    small, large = [
        await gateway.post(
            "/v1/messages",
            json={
                "model": "seer",
                "max_tokens": 1,
                "messages": [
                    {"role": "user", "content": "Draw."},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "draw", "input": given}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "a"},
                            {"type": "image", "source": source},
                        ],
                    },
                ],
            },
        )
        for given in similar
    ]

    assert f"PNG:8x6:{len(image)}:" in small.json()["content"][0]["text"]
    assert large.status_code == 413
    assert "limit text-mib=1, " in large.json()["error"]["message"]


async def test_a_large_invalid_image_is_named(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(SEER)
    broken = {"type": "image_url", "image_url": {"url": data_url(large_png(MIB)) + "?"}}

    response = await gateway.post(CHATS, json=chat("seer", [{"type": "text", "text": "what?"}, broken]))

    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("messages[0].content[1].image_url: invalid base64")


async def test_commas_inside_texts_are_not_values(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    text = ',[{"\\' * 50_000

    accepted = await gateway.post("/v1/apps/echo/invoke", json={"text": text})
    rejected = await gateway.post("/v1/apps/echo/invoke", json={"text": text, "more": [0] * 10_001})

    assert (accepted.status_code, rejected.status_code) == (200, 413)
    assert accepted.json()["text"] == text
    assert "the body has 10005 values (limit json-values=10000, " in rejected.json()["error"]["message"]


async def test_objects_count_as_several_values(gateway: httpx.AsyncClient) -> None:
    parts = [{"type": "text", "text": "a" * 30}] * 2_100

    response = await gateway.post(CHATS, json=chat("any", parts))

    assert response.status_code == 413
    assert "limit json-values=10000, " in response.json()["error"]["message"]


async def test_thousands_of_problems_are_counted(gateway: httpx.AsyncClient) -> None:
    fields = {f"field{number}": number for number in range(9_000)}

    response = await gateway.post(CHATS, json=chat("any", "hello") | fields)

    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"] == "unknown or unsupported field: 'field0': remove it (and 8999 more)"
    assert (error["param"], error["code"]) == ("field0", "unknown_field")


async def test_clients_take_turns_and_leave_half_of_the_time_to_others() -> None:
    work, order = LargeWork(), []

    def step(owner: str) -> None:
        order.append(owner)
        started = time.thread_time()
        while time.thread_time() < started + 0.01:
            pass

    started, cpu = time.monotonic(), time.thread_time()
    owners = ["many"] * 5 + ["one"]
    await asyncio.gather(*(work.run(partial(step, owner), owner) for owner in owners))
    wall, used = time.monotonic() - started, time.thread_time() - cpu

    assert order == ["many", "many", "one", *["many"] * 3]
    assert wall >= 2 * 0.01 * len(owners) > used


async def test_an_error_ends_the_turn() -> None:
    work = LargeWork()

    def fail() -> None:
        raise ValueError("invalid")

    with pytest.raises(ValueError, match="invalid"):
        await work.run(fail, "one")
    assert await work.run(lambda: 1, "other") == 1
