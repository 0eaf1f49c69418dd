"""Images in chats: the values that the app receives, and the errors for invalid images."""

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
from tests.unit.gateway.image_files import animated_file, data_url, image_file, png_of_size
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.sources import SEER
from tests.unit.gateway.web_server import WebServer, endless, redirect, respond_with, silent, web_server
from tests.waiting import until

CHAT = "/v1/chat/completions"
INVOKE = "/v1/apps/seer/invoke"
PNG = image_file()
JPEG = image_file("JPEG", (640, 480))
INVALID_TYPE = "invalid part type: use 'text', 'image_url', 'audio_url', 'input_audio' or 'video_url'"
TEXT = {"type": "text", "text": "What is this?"}


def part(url: str, **more: object) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def chat(*parts: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"model": "seer", "messages": [{"role": "user", "content": list(parts)}], **fields}


def describe(path: str, image: bytes, size: str, format: str = "PNG") -> str:
    return f"{path}={format}:{size}:{len(image)}:{sha256(image).hexdigest()[:8]}"


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
async def site() -> AsyncIterator[WebServer]:
    async with web_server() as site:
        yield site


async def test_an_app_receives_the_images_of_the_official_client(openai: AsyncOpenAI, site: WebServer) -> None:
    site.pages["/photo"] = respond_with(JPEG, content_type="image/jpeg")

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
            describe("messages[1].content[0]", JPEG, "640x480", "JPEG"),
            describe("messages[1].content[2]", PNG, "8x6"),
            describe("messages[3].content[0]", PNG, "8x6"),
            "",
        ]
    )


async def test_streams_support_images(openai: AsyncOpenAI) -> None:
    stream = await openai.chat.completions.create(
        model="seer",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url(PNG)}}]}],
        stream=True,
    )

    texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts).strip() == describe("messages[0].content[0]", PNG, "8x6")


async def test_native_invocations_support_images(gateway: httpx.AsyncClient) -> None:
    body = {"messages": chat(TEXT, part(data_url(PNG)))["messages"]}

    events = await gateway.post(INVOKE, json=body, headers={"accept": "text/event-stream"})

    assert describe("messages[0].content[1]", PNG, "8x6") in events.text


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
        (
            data_url(image_file(size=(1, 1))),
            "image_too_small",
            "the image has 1×1 pixels: each side must have at least 4",
        ),
        (data_url(image_file(size=(3, 99))), "image_too_small", "the image has 3×99 pixels"),
        (
            data_url(png_of_size(20_000, 20_000)),
            "image_too_large",
            "the image has 20000×20000 pixels (limit image-megapixels=1, ",
        ),
        (data_url(png_of_size(2**31 - 1, 2**31 - 1)), "image_too_large", "the image has 2147483647×2147483647 pixels"),
        (data_url(bytes(2 * MIB + 1)), "image_too_large", "the file has 2097153 bytes (limit image-mib=2, "),
        (data_url(animated_file("GIF"), "image/gif"), "unsupported_image", "animated GIF: send a single frame"),
        (data_url(animated_file("WEBP"), "image/webp"), "unsupported_image", "animated WebP"),
        (data_url(image_file("JPEG", mode="CMYK"), "image/jpeg"), "unsupported_image", "(CMYK has 4): save it as RGB"),
        ("file:///etc/passwd", "invalid_image_url", "unsupported URL scheme 'file'"),
        ("ftp://x/y", "invalid_image_url", "unsupported URL scheme 'ftp'"),
        ("", "invalid_image_url", "the URL has no scheme"),
        ("x", "invalid_image_url", "the URL has no scheme"),
        ("http://169.254.169.254/latest/meta-data/", "invalid_image_url", "the host is not allowed"),
        ("http://127.0.0.2:8000/", "invalid_image_url", "the host is not allowed"),
    ],
)
async def test_an_invalid_image_is_a_400_with_its_path_and_reason(
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
        ({"type": "image_url", "image_url": data_url(PNG)}, "messages.0.content.0.image_url", "must be an object"),
        ({"type": "image_url"}, "messages.0.content.0.image_url", "missing field"),
        ({"type": "input_audio"}, "messages.0.content.0.input_audio", "missing field"),
        ({"type": ["text"]}, "messages.0.content.0", INVALID_TYPE),
        (
            {"type": "media", "media": {"format": "PNG", "width": 8, "height": 6, "digest": "0", "where": ""}},
            "messages.0.content.0",
            "invalid part type 'media': use 'text', 'image_url'",
        ),
    ],
)
@pytest.mark.parametrize("path", [CHAT, INVOKE])
async def test_an_invalid_image_part_is_a_400_that_names_it(
    gateway: httpx.AsyncClient, path: str, wrong: dict[str, Any], param: str, message: str
) -> None:
    body = chat(wrong) if path == CHAT else {"messages": chat(wrong)["messages"]}
    response = await gateway.post(path, json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
async def test_only_user_messages_may_contain_images(gateway: httpx.AsyncClient, role: str) -> None:
    message = {"role": role, "content": [part(data_url(PNG))]} | ({"tool_call_id": "1"} if role == "tool" else {})

    response = await gateway.post(CHAT, json={"model": "seer", "messages": [message]})

    assert response.status_code == 400
    assert "message: send them in a user message" in response.json()["error"]["message"]


async def test_the_total_number_of_pixels_is_limited(gateway: httpx.AsyncClient) -> None:
    response = await gateway.post(CHAT, json=chat(*[part(data_url(png_of_size(1000, 900)))] * 3))

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "images_too_large"
    assert "2700000 pixels in total (limit request-megapixels=2" in response.json()["error"]["message"]


async def test_the_number_of_images_is_limited_across_messages(gateway: httpx.AsyncClient) -> None:
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
        (respond_with(JPEG, content_type="image/png"), "the media type is image/png, but the content is JPEG"),
        (respond_with(b"<html>", content_type="text/html"), "unsupported media type 'text/html'"),
        (respond_with(status=404), "the download failed: the server returned status 404"),
        (endless, "the file has too many bytes (limit image-mib=2, "),
        (redirect("http://169.254.169.254/"), "the host is not allowed"),
        (redirect("/"), "redirects"),
    ],
)
async def test_a_failed_fetch_is_a_400_with_its_reason(
    gateway: httpx.AsyncClient, site: WebServer, page: Any, message: str
) -> None:
    site.pages["/"] = page

    response = await gateway.post(CHAT, json=chat(TEXT, part(site.url()), stream=True))

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[1].image_url"
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize("content_type", ["image/jpg", "application/octet-stream", None])
async def test_servers_may_send_an_unknown_media_type(
    gateway: httpx.AsyncClient, site: WebServer, content_type: str | None
) -> None:
    site.pages["/"] = respond_with(JPEG) if content_type is None else respond_with(JPEG, content_type=content_type)

    response = await gateway.post(CHAT, json=chat(part(site.url())))

    assert response.status_code == 200
    assert "JPEG:640x480" in response.json()["choices"][0]["message"]["content"]


async def test_images_are_fetched_concurrently(gateway: httpx.AsyncClient, site: WebServer) -> None:
    all_requested = asyncio.Event()

    async def wait_for_all(writer: asyncio.StreamWriter) -> None:
        if len(site.requests) == 3:
            all_requested.set()
        await all_requested.wait()
        await respond_with(PNG)(writer)

    site.pages["/"] = wait_for_all

    assert (await gateway.post(CHAT, json=chat(*[part(site.url())] * 3))).status_code == 200


async def test_an_invalid_image_cancels_the_other_fetches(gateway: httpx.AsyncClient, site: WebServer) -> None:
    site.pages |= {"/slow": silent, "/wrong": respond_with(status=404)}

    response = await gateway.post(CHAT, json=chat(part(site.url("/slow")), part(site.url("/wrong"))))

    assert "messages[0].content[1].image_url" in response.json()["error"]["message"]
    await until(lambda: site.open == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnect_cancels_fetches(gateway: httpx.AsyncClient, site: WebServer, stream: bool) -> None:
    site.pages["/"] = silent
    requests = asyncio.create_task(gateway.post(CHAT, json=chat(part(site.url()), stream=stream)))
    await until(lambda: site.open == 1)

    requests.cancel()

    await until(lambda: site.open == 0)  # long before fetch_seconds
    await until(lambda: exposes(gateway, "cornserve_gateway_http_requests_in_flight 0.0"))


async def test_the_deadline_of_a_request_applies_to_fetches(gateway: httpx.AsyncClient, site: WebServer) -> None:
    site.pages["/"] = silent

    response = await gateway.post(CHAT, json=chat(part(site.url())), headers={"x-request-timeout": "0.2"})

    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline_exceeded"


async def test_fetched_images_count_as_memory_until_the_request_ends(
    gateway: httpx.AsyncClient, site: WebServer
) -> None:
    big = image_file("BMP", (800, 800))  # 1.9 MB, rejected when it is complete
    waiting = asyncio.Event()

    async def withhold_the_end(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 -\r\ncontent-length: {len(big)}\r\n\r\n".encode() + big[:-1])
        await waiting.wait()

    site.pages |= {"/": withhold_the_end, "/last": respond_with(big)}
    requests = [asyncio.create_task(gateway.post(CHAT, json=chat(*[part(site.url())] * 2))) for _ in range(2)]
    await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 7.68"))

    rejected = await gateway.post(CHAT, json=chat(part(site.url("/last"))))

    assert rejected.status_code == 429
    assert "limit bodies-mib=8, " in rejected.json()["error"]["message"]
    for request in requests:
        request.cancel()
    await until(lambda: exposes(gateway, "cornserve_gateway_body_bytes 0.0"))


async def test_images_are_counted_in_metrics(gateway: httpx.AsyncClient) -> None:
    await gateway.post(CHAT, json=chat(TEXT))
    await gateway.post(CHAT, json=chat(part(data_url(PNG)), part(data_url(PNG))))

    assert await exposes(gateway, 'cornserve_gateway_media_total{app="seer",modality="image"} 2.0')
    assert await exposes(gateway, 'cornserve_gateway_media_load_seconds_count{app="seer"} 1.0')


class TestFetchTimeout:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(fetch_seconds=1)

    async def test_a_fetch_from_a_silent_server_times_out(self, gateway: httpx.AsyncClient, site: WebServer) -> None:
        site.pages["/"] = silent

        response = await gateway.post(CHAT, json=chat(TEXT, part(site.url())))

        assert response.status_code == 400
        assert response.json()["error"]["param"] == "messages[0].content[1].image_url"
        assert "it did not complete in time (limit fetch-seconds=1, " in response.json()["error"]["message"]


class TestDefaultLimits:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits()

    async def test_a_request_may_contain_four_images_of_ten_megabytes(self, gateway: httpx.AsyncClient) -> None:
        large = bytearray(png_of_size(4000, 3000))
        large[-12:-12] = b"\0\x98\x96\x80tEXt" + bytes(10_000_004)

        response = await gateway.post(CHAT, json=chat(*[part(data_url(bytes(large)))] * 4))

        assert response.status_code == 200
        assert response.json()["choices"][0]["message"]["content"].count("PNG:4000x3000") == 4
