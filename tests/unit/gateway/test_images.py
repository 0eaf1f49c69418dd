"""Images in chats: what the app gets, and what the client is told who sends something else."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx2 as httpx
import pytest
from openai import AsyncOpenAI

from cornserve.limits import MIB, Limits
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.pictures import animated, claims, data_url, picture
from tests.unit.gateway.sources import SEER
from tests.unit.gateway.web import Web, answer, endless, redirect, silent, web
from tests.waiting import until

CHAT = "/v1/chat/completions"
INVOKE = "/v1/apps/seer/invoke"
PNG = picture()
JPEG = picture("JPEG", (640, 480))
TEXT = {"type": "text", "text": "What is this?"}


def part(url: str, **more: object) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def chat(*parts: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"model": "seer", "messages": [{"role": "user", "content": list(parts)}], **fields}


def told(where: str, image: bytes, size: str, format: str = "PNG") -> str:
    return f"{where}={format}:{size}:{len(image)}:{sha256(image).hexdigest()[:8]}"


@pytest.fixture
def limits() -> Limits:
    return Limits(images=3, image_mib=2, image_megapixels=1, request_megapixels=2, fetch_seconds=60, bodies_mib=8)


@pytest.fixture
def media_from() -> list[str]:
    return ["public", "127.0.0.1"]


@pytest.fixture(autouse=True)
async def seer(deploy: Deploy) -> None:
    await deploy(SEER)


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with web() as site:
        yield site


async def test_an_app_gets_what_the_official_client_sends(openai: AsyncOpenAI, site: Web) -> None:
    site.pages["/photo"] = answer(JPEG, content_type="image/jpeg")

    completion = await openai.chat.completions.create(
        model="seer",
        messages=[
            {"role": "system", "content": "Look!"},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": site.url("/photo")}},
                    {"type": "text", "text": "and"},
                    {"type": "image_url", "image_url": {"url": data_url(PNG), "detail": "high"}},
                ],
            },
            {"role": "assistant", "content": "I see."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url(PNG)}}]},
        ],
    )

    assert completion.choices[0].message.content == " ".join(
        [
            told("messages[1].content[0]", JPEG, "640x480", "JPEG"),
            told("messages[1].content[2]", PNG, "8x6"),
            told("messages[3].content[0]", PNG, "8x6"),
            "",
        ]
    )


async def test_streams_have_images_too(openai: AsyncOpenAI) -> None:
    stream = await openai.chat.completions.create(
        model="seer",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url(PNG)}}]}],
        stream=True,
    )

    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces).strip() == told("messages[0].content[0]", PNG, "8x6")


async def test_native_invocations_have_images_too(gateway: httpx.AsyncClient) -> None:
    body = {"messages": chat(TEXT, part(data_url(PNG)))["messages"]}

    events = await gateway.post(INVOKE, json=body, headers={"accept": "text/event-stream"})

    assert told("messages[0].content[1]", PNG, "8x6") in events.text


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("data:image/png;base64,@@@@", "invalid_base64_image", "invalid base64"),
        ("data:image/png;base64,AAA", "invalid_base64_image", "invalid base64"),
        ("data:image/png;base64," + b64encode(PNG).decode() + "\n", "invalid_base64_image", "invalid base64"),
        ("data:image/png;base64,é", "invalid_base64_image", "invalid base64"),
        ("data:image/png;base64,", "invalid_image", "the file is empty"),
        ("data:image/png,AAAA", "invalid_image_url", "the data: URL is not base64"),
        ("data:image/png", "invalid_image_url", "not a data: URL"),
        ("data:" + "x" * 300, "invalid_image_url", "not a data: URL"),
        ("data:;base64,AAAA", "unsupported_image", "unsupported media type '': send PNG, JPEG, WebP or GIF"),
        ("data:text/html;base64,AAAA", "unsupported_image", "unsupported media type 'text/html'"),
        ("data:image/svg+xml;base64,AAAA", "unsupported_image", "unsupported media type 'image/svg+xml'"),
        ("data:image/png;base64,AAAA", "unsupported_image", "unsupported image format"),
        (data_url(JPEG), "unsupported_image", "the media type is image/png, but the content is JPEG"),
        (data_url(JPEG[:-100], "image/jpeg"), "invalid_image", "truncated: the JPEG has no end marker"),
        (data_url(PNG[:-8]), "invalid_image", "truncated: the PNG has no end"),
        (data_url(picture(size=(1, 1))), "image_too_small", "the image has 1×1 pixels: each side must have at least 4"),
        (data_url(picture(size=(3, 99))), "image_too_small", "the image has 3×99 pixels"),
        (
            data_url(claims(20_000, 20_000)),
            "image_too_large",
            "the image has 20000×20000 pixels (limit image-megapixels=1, ",
        ),
        (data_url(claims(2**31 - 1, 2**31 - 1)), "image_too_large", "the image has 2147483647×2147483647 pixels"),
        (data_url(bytes(2 * MIB + 1)), "image_too_large", "the file has 2097153 bytes (limit image-mib=2, "),
        (data_url(animated("GIF"), "image/gif"), "unsupported_image", "animated GIF: send a single frame"),
        (data_url(animated("WEBP"), "image/webp"), "unsupported_image", "animated WebP"),
        (data_url(picture("JPEG", mode="CMYK"), "image/jpeg"), "unsupported_image", "(CMYK has 4): save it as RGB"),
        ("file:///etc/passwd", "invalid_image_url", "unsupported URL scheme 'file'"),
        ("ftp://x/y", "invalid_image_url", "unsupported URL scheme 'ftp'"),
        ("", "invalid_image_url", "unsupported URL scheme ''"),
        ("x", "invalid_image_url", "unsupported URL scheme ''"),
        ("http://169.254.169.254/latest/meta-data/", "invalid_image_url", "the host is not allowed"),
        ("http://127.0.0.2:8000/", "invalid_image_url", "the host is not allowed"),
    ],
)
async def test_a_bad_image_is_a_400_that_says_what_is_wrong_with_which(
    gateway: httpx.AsyncClient, url: str, code: str, message: str
) -> None:
    response = await gateway.post(CHAT, json=chat(part(data_url(PNG)), TEXT, part(url)))

    assert response.status_code == 400
    error = response.json()["error"]
    assert error["message"].startswith("messages[0].content[2].image_url: ")
    assert message in error["message"]
    assert (error["param"], error["code"]) == ("messages[0].content[2].image_url", code)
    assert error["type"] == "invalid_request_error"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("wrong", "param", "message"),
    [
        (part(data_url(PNG), detail="low"), "messages.0.content.0.image_url.detail", "'auto' or 'high', not 'low'"),
        ({"type": "image_url", "image_url": data_url(PNG)}, "messages.0.content.0.image_url", "Input should be"),
        ({"type": "image_url"}, "messages.0.content.0.image_url", "missing field"),
        ({"type": "input_audio"}, "messages.0.content.0", "invalid part type: use 'text' or 'image_url'"),
        ({"type": ["text"]}, "messages.0.content.0", "invalid part type: use 'text' or 'image_url'"),
        (
            {"type": "image", "image": {"format": "PNG", "width": 8, "height": 6, "digest": "0", "where": ""}},
            "messages.0.content.0",
            "invalid part type 'image': send images as 'image_url'",
        ),
    ],
)
@pytest.mark.parametrize("path", [CHAT, INVOKE])
async def test_a_part_that_is_no_image_url_is_a_400_that_names_it(
    gateway: httpx.AsyncClient, path: str, wrong: dict[str, Any], param: str, message: str
) -> None:
    body = chat(wrong) if path == CHAT else {"messages": chat(wrong)["messages"]}
    response = await gateway.post(path, json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
async def test_only_users_show_images(gateway: httpx.AsyncClient, role: str) -> None:
    message = {"role": role, "content": [part(data_url(PNG))]} | ({"tool_call_id": "1"} if role == "tool" else {})

    response = await gateway.post(CHAT, json={"model": "seer", "messages": [message]})

    assert response.status_code == 400
    assert "message, only in a user message" in response.json()["error"]["message"]


async def test_images_that_are_small_as_files_may_be_too_many_pixels_together(gateway: httpx.AsyncClient) -> None:
    response = await gateway.post(CHAT, json=chat(*[part(data_url(claims(1000, 900)))] * 3))

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "images_too_large"
    assert "2700000 pixels in total (limit request-megapixels=2" in response.json()["error"]["message"]


async def test_images_are_counted_over_all_messages(gateway: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": [part(data_url(PNG))] * 2}] * 2

    response = await gateway.post(CHAT, json={"model": "seer", "messages": messages})

    assert response.status_code == 400
    assert response.json()["error"] == {
        "message": "the request has 4 images (limit images=3, see `cornserve up --limit`)",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "too_many_images",
    }


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (answer(JPEG, content_type="image/png"), "the media type is image/png, but the content is JPEG"),
        (answer(b"<html>", content_type="text/html"), "unsupported media type 'text/html'"),
        (answer(status=404), "the download failed: the server returned status 404"),
        (endless, "the file has too many bytes (limit image-mib=2, "),
        (redirect("http://169.254.169.254/"), "the host is not allowed"),
        (redirect("/"), "redirects"),
    ],
)
async def test_what_cannot_be_fetched_is_a_400_that_says_why(
    gateway: httpx.AsyncClient, site: Web, page: Any, message: str
) -> None:
    site.pages["/"] = page

    response = await gateway.post(CHAT, json=chat(TEXT, part(site.url()), stream=True))

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[1].image_url"
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize("content_type", ["image/jpg", "application/octet-stream", None])
async def test_servers_that_do_not_know_what_they_send_are_forgiven(
    gateway: httpx.AsyncClient, site: Web, content_type: str | None
) -> None:
    site.pages["/"] = answer(JPEG) if content_type is None else answer(JPEG, content_type=content_type)

    response = await gateway.post(CHAT, json=chat(part(site.url())))

    assert response.status_code == 200
    assert "JPEG:640x480" in response.json()["choices"][0]["message"]["content"]


async def test_images_are_fetched_at_once(gateway: httpx.AsyncClient, site: Web) -> None:
    all_are_asked = asyncio.Event()

    async def waits(writer: asyncio.StreamWriter) -> None:
        if len(site.asked) == 3:
            all_are_asked.set()
        await all_are_asked.wait()
        await answer(PNG)(writer)

    site.pages["/"] = waits

    assert (await gateway.post(CHAT, json=chat(*[part(site.url())] * 3))).status_code == 200


async def test_one_image_that_is_wrong_ends_the_fetching_of_the_others(gateway: httpx.AsyncClient, site: Web) -> None:
    site.pages |= {"/slow": silent, "/wrong": answer(status=404)}

    response = await gateway.post(CHAT, json=chat(part(site.url("/slow")), part(site.url("/wrong"))))

    assert "messages[0].content[1].image_url" in response.json()["error"]["message"]
    await until(lambda: site.open == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_what_is_fetched_for_it(
    gateway: httpx.AsyncClient, site: Web, stream: bool
) -> None:
    site.pages["/"] = silent
    asking = asyncio.create_task(gateway.post(CHAT, json=chat(part(site.url()), stream=stream)))
    await until(lambda: site.open == 1)

    asking.cancel()

    await until(lambda: site.open == 0)  # long before the minute of fetch_seconds is over
    await until(lambda: exposes(gateway, "cornserve_gateway_http_requests_in_flight 0.0"))


async def test_the_requests_deadline_counts_while_images_are_fetched(gateway: httpx.AsyncClient, site: Web) -> None:
    site.pages["/"] = silent

    response = await gateway.post(CHAT, json=chat(part(site.url())), headers={"x-request-timeout": "0.2"})

    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline_exceeded"


async def test_what_is_fetched_counts_as_memory_until_the_request_is_over(
    gateway: httpx.AsyncClient, site: Web
) -> None:
    big = picture("BMP", (800, 800))  # 1.9 MB, and refused at the end
    waiting = asyncio.Event()

    async def withholds_the_end(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 -\r\ncontent-length: {len(big)}\r\n\r\n".encode() + big[:-1])
        await waiting.wait()

    site.pages |= {"/": withholds_the_end, "/last": answer(big)}
    asking = [asyncio.create_task(gateway.post(CHAT, json=chat(*[part(site.url())] * 2))) for _ in range(2)]
    await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 7.68"))

    refused = await gateway.post(CHAT, json=chat(part(site.url("/last"))))

    assert refused.status_code == 429
    assert "limit bodies-mib=8, " in refused.json()["error"]["message"]
    for one in asking:
        one.cancel()
    await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0.0"))


async def test_images_are_counted(gateway: httpx.AsyncClient) -> None:
    await gateway.post(CHAT, json=chat(TEXT))
    await gateway.post(CHAT, json=chat(part(data_url(PNG)), part(data_url(PNG))))

    assert await exposes(gateway, 'cornserve_gateway_images_total{app="seer"} 2.0')
    assert await exposes(gateway, 'cornserve_gateway_image_load_seconds_count{app="seer"} 1.0')


class TestPatience:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(fetch_seconds=1)

    async def test_a_server_that_is_silent_is_not_waited_for(self, gateway: httpx.AsyncClient, site: Web) -> None:
        site.pages["/"] = silent

        response = await gateway.post(CHAT, json=chat(TEXT, part(site.url())))

        assert response.status_code == 400
        assert response.json()["error"]["param"] == "messages[0].content[1].image_url"
        assert "it did not complete in time (limit fetch-seconds=1, " in response.json()["error"]["message"]


class TestDefaults:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits()

    async def test_four_images_of_ten_megabytes_are_taken_in_one_request(self, gateway: httpx.AsyncClient) -> None:
        large = bytearray(claims(4000, 3000))
        large[-12:-12] = b"\0\x98\x96\x80tEXt" + bytes(10_000_004)

        response = await gateway.post(CHAT, json=chat(*[part(data_url(bytes(large)))] * 4))

        assert response.status_code == 200
        assert response.json()["choices"][0]["message"]["content"].count("PNG:4000x3000") == 4
