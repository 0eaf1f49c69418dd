"""Audio in chats: the values that the app receives, and the errors for invalid audio."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from cornserve.gateway.media.cut_media import MIN_CUT_BYTES
from cornserve.limits import Limits
from tests.audio import audio_file, sound
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, image_file
from tests.unit.gateway.metrics import sample
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import SEER
from tests.unit.gateway.web_server import WebServer, respond_with, web_server

CHAT = "/v1/chat/completions"
WAV = audio_file(sound(0))
FLAC = audio_file(sound(1, 0.5), format="FLAC")


def base64_part(data: bytes, format: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": b64encode(data).decode(), "format": format}}


def url_part(url: str) -> dict[str, Any]:
    return {"type": "audio_url", "audio_url": {"url": url}}


def chat(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"model": "seer", "messages": [{"role": "user", "content": list(parts)}]}


def describe(path: str, file: bytes, size: str, format: str = "WAV") -> str:
    return f"{path}={format}:{size}:{len(file)}:{sha256(file).hexdigest()[:8]}"


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    limits = Limits(audios=3, audio_mib=2, audio_seconds=20, request_audio_seconds=30)
    return GatewayOptions(limits, media_from=("127.0.0.1",))


MEDIA = 'cornserve_gateway_media_total{app="seer",modality="audio"}'


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def seer(deploy_for_module: Deploy) -> None:
    await deploy_for_module(SEER)


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncIterator[WebServer]:
    async with web_server() as site:
        yield site


async def test_an_app_receives_the_audio_of_the_official_client(openai: AsyncOpenAI) -> None:
    completion = await openai.chat.completions.create(
        model="seer",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": b64encode(WAV).decode(), "format": "wav"}},
                    {"type": "text", "text": "and"},
                    {"type": "image_url", "image_url": {"url": data_url(image_file())}},
                ],
            }
        ],
    )

    expected = [
        describe("messages[0].content[0]", WAV, "1s"),
        describe("messages[0].content[2]", image_file(), "8x6", "PNG"),
    ]
    assert (completion.choices[0].message.content or "").split() == expected


async def test_audio_can_be_sent_by_url_and_natively(gateway: httpx.AsyncClient, site: WebServer) -> None:
    site.pages["/a.flac"] = respond_with(FLAC, content_type="audio/flac")
    parts = [url_part(site.url("/a.flac")), base64_part(WAV), url_part(data_url(FLAC, "audio/x-flac"))]

    before = await sample(gateway, MEDIA)
    events = await gateway.post(
        "/v1/apps/seer/invoke", json={"messages": chat(*parts)["messages"]}, headers={"accept": "text/event-stream"}
    )

    expected = [
        describe("messages[0].content[0]", FLAC, "0.5s", "FLAC"),
        describe("messages[0].content[1]", WAV, "1s"),
        describe("messages[0].content[2]", FLAC, "0.5s", "FLAC"),
    ]
    assert all(description in events.text for description in expected)
    assert await sample(gateway, MEDIA) == before + 3


async def test_recordings_of_phones_and_browsers_are_accepted(gateway: httpx.AsyncClient) -> None:
    m4a, webm = audio_file(sound(0), format="M4A"), audio_file(sound(0, 1, 48_000), 48_000, "WEBM")
    parts = [base64_part(m4a, "m4a"), base64_part(webm, "webm"), url_part(data_url(webm, "audio/webm;codecs=opus"))]

    response = await gateway.post(CHAT, json=chat(*parts))

    media = response.json()["choices"][0]["message"]["content"].split()
    assert [medium.split(":")[0].partition("=")[2] for medium in media] == ["M4A", "WEBM", "WEBM"]


@pytest.mark.parametrize("seconds", [0.1, 2])
async def test_input_audio_may_be_a_data_url(gateway: httpx.AsyncClient, seconds: float) -> None:
    """Long base64 is cut out of the body before it is parsed, short base64 is not."""
    data = audio_file(sound(0, seconds))
    assert (len(b64encode(data)) < MIN_CUT_BYTES) == (seconds < 1)
    part = {"type": "input_audio", "input_audio": {"data": data_url(data, "audio/wav"), "format": "wav"}}

    response = await gateway.post(CHAT, json=chat(part))

    expected = describe("messages[0].content[0]", data, f"{seconds}s")
    assert response.json()["choices"][0]["message"]["content"].split() == [expected]


@pytest.mark.parametrize(
    ("part", "code", "message"),
    [
        (base64_part(b""), "invalid_audio", "the file is empty"),
        (base64_part(FLAC[:43]), "invalid_audio", "truncated: the file ends in its header"),
        (base64_part(audio_file(sound(0, 0))), "audio_too_small", "the audio has no samples"),
        (base64_part(audio_file(sound(0, 21))), "audio_too_large", "the audio takes 21.0 s (limit audio-seconds=20,"),
        (base64_part(bytes(3 << 20)), "audio_too_large", "(limit audio-mib=2, "),
        (url_part("data:audio/wav;base64,@"), "invalid_base64_audio", "invalid base64"),
        (url_part("ftp://x.example/"), "invalid_audio_url", "unsupported URL scheme"),
        (url_part("http://10.1.1.1/"), "invalid_audio_url", "the host is not allowed"),
        (url_part(data_url(image_file())), "unsupported_audio", "unsupported audio format: send WAV, AIFF, MP3"),
    ],
)
async def test_invalid_audio_is_a_400_that_names_it_and_the_reason(
    gateway: httpx.AsyncClient, part: dict[str, Any], code: str, message: str
) -> None:
    response = await gateway.post(CHAT, json=chat(base64_part(WAV), part))

    error = response.json()["error"]
    param = f"messages[0].content[1].{part['type']}"
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    assert error["message"].startswith(f"{param}: ")
    assert message in error["message"]


async def test_the_audio_of_a_request_is_limited(gateway: httpx.AsyncClient) -> None:
    long = base64_part(audio_file(sound(0, 16, 8_000), 8_000))

    many = await gateway.post(CHAT, json=chat(*[base64_part(WAV)] * 4))
    seconds = await gateway.post(CHAT, json=chat(long, long))

    assert many.json()["error"]["message"].startswith("the request has 4 audios (limit audios=3, ")
    assert seconds.json()["error"]["message"].startswith("the audios take 32.0 s in total (limit request-audio-sec")
    assert [many.json()["error"]["code"], seconds.json()["error"]["code"]] == ["too_many_audios", "audios_too_large"]
