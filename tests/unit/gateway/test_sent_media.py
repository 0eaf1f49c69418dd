"""The ways in which clients write media: the content of a file determines its format."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from textwrap import wrap
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from tests.audio import audio_file, sound
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, image_file
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import SEER
from tests.unit.gateway.web_server import respond_with, web_server
from tests.video import video_file

CHAT = "/v1/chat/completions"
FILES = [image_file(), image_file("PNG", (300, 100), compress_level=0)]
"""A file whose base64 stays in the JSON, and one whose base64 is cut out of the body."""

PNG, LARGE = FILES


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    return GatewayOptions(media_from=("127.0.0.1",))


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def seer(deploy_for_module: Deploy) -> None:
    await deploy_for_module(SEER)


def image_part(url: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


async def digests(gateway: httpx.AsyncClient, *parts: dict[str, Any], role: str = "user") -> list[str]:
    """Returns the start of the digest of each file that the app has received."""
    message = {"role": role, "content": list(parts)} | ({"tool_call_id": "call-1"} if role == "tool" else {})
    response = await gateway.post(CHAT, json={"model": "seer", "messages": [message]})
    assert response.status_code == 200, response.text
    return [medium.rpartition(":")[2] for medium in response.json()["choices"][0]["message"]["content"].split()]


def digest(file: bytes) -> str:
    return sha256(file).hexdigest()[:8]


@pytest.mark.parametrize("file", FILES, ids=["short", "long"])
@pytest.mark.parametrize(
    "head",
    ["data:image/jpeg;base64,", "data:image/*;base64,", "data:application/octet-stream;base64,", "data:;base64,"],
)
async def test_the_declared_type_has_no_effect(gateway: httpx.AsyncClient, head: str, file: bytes) -> None:
    assert await digests(gateway, image_part(head + b64encode(file).decode())) == [digest(file)]


@pytest.mark.parametrize("file", FILES, ids=["short", "long"])
@pytest.mark.parametrize(
    "encode",
    [
        lambda file: "\n".join(wrap(b64encode(file).decode(), 76)),
        lambda file: "\r\n".join(wrap(b64encode(file).decode(), 64)) + "\r\n",
        lambda file: urlsafe_b64encode(file).decode(),
        lambda file: urlsafe_b64encode(file).decode().rstrip("="),
    ],
    ids=["lines", "lines of mail", "URL-safe", "unpadded"],
)
async def test_base64_has_several_spellings(
    gateway: httpx.AsyncClient, encode: Callable[[bytes], str], file: bytes
) -> None:
    file += bytes(-len(file) % 3) + b"\xfb\xef\xff\x00"  # Padding, and the characters in which the alphabets differ.

    assert await digests(gateway, image_part(f"data:image/png;base64,{encode(file)}")) == [digest(file)]


@pytest.mark.parametrize("end", ["A", "AAAAA", "A=A=", "*"])
async def test_base64_that_is_incomplete_or_has_other_characters_is_a_400(gateway: httpx.AsyncClient, end: str) -> None:
    part = image_part(f"data:image/png;base64,AAAA{end}")
    response = await gateway.post(CHAT, json={"model": "seer", "messages": [{"role": "user", "content": [part]}]})

    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_base64_image")


@pytest.mark.parametrize("file", FILES, ids=["short", "long"])
async def test_a_url_may_be_a_text_instead_of_an_object(gateway: httpx.AsyncClient, file: bytes) -> None:
    wav, mp4 = audio_file(sound(0)), video_file()
    parts = [
        {"type": "image_url", "image_url": data_url(file)},
        {"type": "audio_url", "audio_url": data_url(wav)},
        {"type": "video_url", "video_url": data_url(mp4)},
    ]

    assert await digests(gateway, *parts) == [digest(file), digest(wav), digest(mp4)]


@pytest.mark.parametrize("audio", [{"format": "mp3"}, {"format": "audio/x-wav"}, {}])
async def test_the_format_of_audio_has_no_effect(gateway: httpx.AsyncClient, audio: dict[str, str]) -> None:
    wav = audio_file(sound(0))
    part = {"type": "input_audio", "input_audio": {"data": b64encode(wav).decode(), **audio}}

    assert await digests(gateway, part) == [digest(wav)]


async def test_levels_of_detail_and_ids_of_vllm_have_no_effect(gateway: httpx.AsyncClient) -> None:
    parts = [image_part(data_url(PNG), detail=detail) for detail in (None, "auto", "low", "high", "original")]
    parts += [{**image_part(data_url(PNG)), "uuid": "photo-1"}]

    assert await digests(gateway, *parts) == [digest(PNG)] * 6


@pytest.mark.parametrize("content_type", ["image/jpeg", "text/plain", "application/octet-stream", ""])
async def test_the_type_that_a_server_declares_has_no_effect(gateway: httpx.AsyncClient, content_type: str) -> None:
    async with web_server() as site:
        site.pages["/photo"] = respond_with(PNG, content_type=content_type)

        assert await digests(gateway, image_part(site.url("/photo"))) == [digest(PNG)]


async def test_an_error_shows_nothing_of_how_a_body_is_read(gateway: httpx.AsyncClient) -> None:
    part = {"type": "image_url", "image_url": {"url": [data_url(LARGE)]}}, {"type": "text", "text": data_url(LARGE)}
    wrong = {"type": "input_audio", "input_audio": data_url(LARGE)}
    for parts in (list(part), [wrong], [{"type": "text", "image_url": data_url(LARGE)}]):
        response = await gateway.post(CHAT, json={"model": "seer", "messages": [{"role": "user", "content": parts}]})

        assert response.status_code == 400
        assert "…0" not in response.text  # The reference in place of the base64.
        assert "base64," not in response.text


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
async def test_every_message_may_have_media(gateway: httpx.AsyncClient, role: str) -> None:
    parts = [{"type": "text", "text": "Look:"}, image_part(data_url(PNG))]

    assert await digests(gateway, *parts, role=role) == [digest(PNG)]


async def test_the_result_of_a_tool_of_anthropic_may_have_images(gateway: httpx.AsyncClient) -> None:
    source = {"type": "base64", "media_type": "image/jpeg", "data": b64encode(PNG).decode()}
    result: list[dict[str, Any]] = [{"type": "text", "text": "The page:"}, {"type": "image", "source": source}]
    use = {"type": "tool_use", "id": "call-1", "name": "see", "input": {}}
    broken = {"type": "image", "source": {**source, "data": "AAAA"}}

    def messages(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
        results = {"type": "tool_result", "tool_use_id": "call-1", "content": [*blocks]}
        content = [{"type": "text", "text": "Go on."}, results]
        return [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": content},
        ]

    body = {"model": "seer", "max_tokens": 7}
    seen = await gateway.post("/v1/messages", json=body | {"messages": messages(*result)})
    refused = await gateway.post("/v1/messages", json=body | {"messages": messages(*result, broken)})

    position, _, found = seen.json()["content"][0]["text"].strip().partition("=")
    assert (position, found.rpartition(":")[2]) == ("messages[2].content[1].content[1]", digest(PNG))
    message = refused.json()["error"]["message"]
    assert message.startswith("messages[2].content[1].content[2].source: unsupported image format"), message


async def test_items_of_responses_may_have_all_media(gateway: httpx.AsyncClient) -> None:
    wav, mp4 = audio_file(sound(0)), video_file()
    parts = [
        {"type": "input_image", "image_url": data_url(PNG), "detail": "low"},
        {"type": "input_audio", "input_audio": {"data": b64encode(wav).decode(), "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": data_url(wav)}},
        {"type": "video_url", "video_url": data_url(mp4)},
    ]
    call = {"type": "function_call", "call_id": "call-1", "name": "see", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call-1", "output": [parts[0]]}
    items = [{"role": "developer", "content": parts}, call, output]

    response = await gateway.post("/v1/responses", json={"model": "seer", "input": items})

    media = [medium.partition("=") for medium in response.json()["output"][0]["content"][0]["text"].split()]
    assert [position for position, *_ in media] == [
        *(f"input[0].content[{index}]" for index in range(4)),
        "input[2].output[0]",
    ]
    assert [found.rpartition(":")[2] for *_, found in media] == [*map(digest, (PNG, wav, wav, mp4, PNG))]
