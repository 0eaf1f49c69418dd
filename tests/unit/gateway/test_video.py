"""Videos in chats: the values that the app receives, and the errors for invalid videos."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest
from cornserve.gateway.media.cut_media import MIN_CUT_BYTES
from cornserve.limits import Limits
from tests.audio import audio_file, sound
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, image_file
from tests.unit.gateway.metrics import sample
from tests.unit.gateway.refused_bodies import refusal
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import SEER
from tests.unit.gateway.web_server import WebServer, respond_with, web_server
from tests.video import transparent_gif, video_file

CHAT = "/v1/chat/completions"
MP4 = video_file()
WEBM = video_file("WEBM", "libvpx")
GIF = transparent_gif([100] * 5)


def video_part(data: bytes, media_type: str = "video/mp4") -> dict[str, Any]:
    return url_part(data_url(data, media_type))


def url_part(url: str) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


def chat(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"model": "seer", "messages": [{"role": "user", "content": list(parts)}]}


def describe(path: str, file: bytes, size: str, format: str = "MP4") -> str:
    return f"{path}={format}:{size}:{len(file)}:{sha256(file).hexdigest()[:8]}"


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    limits = Limits(
        videos=3, video_mib=1, video_megapixels=1, video_frames=30, video_seconds=20, request_video_seconds=30
    )
    return GatewayOptions(limits, media_from=("127.0.0.1",))


MEDIA = 'cornserve_gateway_media_total{app="seer",modality="video"}'


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def seer(deploy_for_module: Deploy) -> None:
    await deploy_for_module(SEER)


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncIterator[WebServer]:
    async with web_server() as site:
        yield site


async def test_an_app_receives_the_media_of_the_official_client_in_any_order(openai: AsyncOpenAI) -> None:
    wav, png = audio_file(sound(0)), image_file()
    parts: list[Any] = [
        video_part(MP4),
        {"type": "image_url", "image_url": {"url": data_url(png)}},
        video_part(GIF, "image/gif"),
        {"type": "text", "text": "and"},
        {"type": "audio_url", "audio_url": {"url": data_url(wav, "audio/wav")}},
        video_part(WEBM, "video/webm"),
    ]

    completion = await openai.chat.completions.create(model="seer", messages=[{"role": "user", "content": parts}])

    expected = [
        describe("messages[0].content[0]", MP4, "2s"),
        describe("messages[0].content[1]", png, "8x6", "PNG"),
        describe("messages[0].content[2]", GIF, "0.5s", "GIF"),
        describe("messages[0].content[4]", wav, "1s", "WAV"),
        describe("messages[0].content[5]", WEBM, "2s", "WEBM"),
    ]
    assert (completion.choices[0].message.content or "").split() == expected


async def test_videos_are_fetched(gateway: httpx.AsyncClient, site: WebServer) -> None:
    site.pages["/a.mp4"] = respond_with(MP4, content_type="video/mp4")
    site.pages["/b"] = respond_with(WEBM, content_type="application/octet-stream")

    before = await sample(gateway, MEDIA)
    response = await gateway.post(CHAT, json=chat(url_part(site.url("/a.mp4")), url_part(site.url("/b"))))

    expected = [
        describe("messages[0].content[0]", MP4, "2s"),
        describe("messages[0].content[1]", WEBM, "2s", "WEBM"),
    ]
    assert response.json()["choices"][0]["message"]["content"].split() == expected
    assert await sample(gateway, MEDIA) == before + 2


@pytest.mark.parametrize("frames", [3, 30])
async def test_large_videos_are_cut_out_of_the_body(gateway: httpx.AsyncClient, frames: int) -> None:
    data = video_file("GIF", "gif", frames, pixel_format="rgb8")
    assert (len(data) > MIN_CUT_BYTES) == (frames > 3)

    response = await gateway.post(CHAT, json=chat(video_part(data, "image/gif")))

    expected = describe("messages[0].content[0]", data, f"{frames / 10:g}s", "GIF")
    assert response.json()["choices"][0]["message"]["content"].split() == [expected]


INVALID = [
    (video_part(b""), "invalid_video", "the file is empty"),
    (video_part(MP4[:-9]), "invalid_video", "truncated: the MP4 ends in a box"),
    (video_part(video_file(count=31)), "video_too_large", "more than 30 frames (limit video-frames=30, see"),
    (video_part(video_file(fps=1, count=21)), "video_too_large", "takes 21.0 s (limit video-seconds=20, see"),
    (video_part(bytes(2 << 20)), "video_too_large", "(limit video-mib=1, "),
    (video_part(video_file(count=1, width=1000, height=1002)), "video_too_large", "(limit video-megapixels=1, "),
    (url_part("data:video/mp4;base64,@"), "invalid_base64_video", "invalid base64"),
    (url_part("ftp://x.example/"), "invalid_video_url", "unsupported URL scheme"),
    (url_part("http://10.1.1.1/"), "invalid_video_url", "the host is not allowed"),
    (url_part("http://169.254.169.254/latest/"), "invalid_video_url", "the host is not allowed"),
    (url_part(data_url(image_file())), "unsupported_video", "unsupported video format: send MP4, MOV"),
]


async def test_an_invalid_video_is_a_400_that_names_it_and_the_reason(gateway: httpx.AsyncClient) -> None:
    for part, code, message in INVALID:
        response = await gateway.post(CHAT, json=chat(video_part(MP4), part))

        error = response.json()["error"]
        param = "messages[0].content[1].video_url"
        assert (response.status_code, error["code"], error["param"]) == (400, code, param)
        assert error["message"].startswith(f"{param}: ")
        assert message in error["message"]


async def test_the_videos_of_a_request_are_limited(gateway: httpx.AsyncClient) -> None:
    long = video_part(video_file(fps=1, count=16))

    many = await gateway.post(CHAT, json=chat(*[video_part(MP4)] * 4))
    seconds = await gateway.post(CHAT, json=chat(long, long))

    assert many.json()["error"]["message"].startswith("the request has 4 videos (limit videos=3, ")
    assert seconds.json()["error"]["message"].startswith("the videos take 32.0 s in total (limit request-video-sec")
    assert [many.json()["error"]["code"], seconds.json()["error"]["code"]] == ["too_many_videos", "videos_too_large"]


WITH_SOUND = video_file(sound="aac")
SOUND = {"mm_processor_kwargs": {"use_audio_in_video": True}}


async def test_the_sound_of_videos_follows_them(gateway: httpx.AsyncClient) -> None:
    png = {"type": "image_url", "image_url": {"url": data_url(image_file())}}
    request = chat(video_part(WITH_SOUND), png)

    response = await gateway.post(CHAT, json=request | SOUND)
    without = await gateway.post(CHAT, json=request | {"mm_processor_kwargs": {"use_audio_in_video": False}})

    first, second = "messages[0].content[0]", "messages[0].content[1]"
    video, image = describe(first, WITH_SOUND, "2s"), describe(second, image_file(), "8x6", "PNG")
    track = describe(first, WITH_SOUND, "1.02135s", "M4A")
    assert response.json()["choices"][0]["message"]["content"].split() == [video, track, image]
    assert without.json()["choices"][0]["message"]["content"].split() == [video, image]


@pytest.mark.parametrize(("codec", "seconds"), [("mp3", "1.032s"), ("aac", "1.024s")])
async def test_the_sound_of_avi_files_is_mp3_or_aac(gateway: httpx.AsyncClient, codec: str, seconds: str) -> None:
    video = video_file("AVI", "mpeg4", sound=codec)

    response = await gateway.post(CHAT, json=chat(video_part(video)) | SOUND)

    found = response.json()["choices"][0]["message"]["content"].split()
    place = "messages[0].content[0]"
    assert found == [describe(place, video, "2.1s", "AVI"), describe(place, video, seconds, "AVI")]


async def test_sound_that_cannot_be_used_is_a_400_that_names_it(gateway: httpx.AsyncClient) -> None:
    option, part = "mm_processor_kwargs.use_audio_in_video", "messages[0].content[0].video_url"
    silent = "the video has no sound: send it without use_audio_in_video"
    audio = {"type": "audio_url", "audio_url": {"url": data_url(audio_file(sound(0)), "audio/wav")}}
    unknown = {"mm_processor_kwargs": {"size": 1}}
    invalid = [
        (chat(video_part(MP4)) | SOUND, part, f"{part}: {silent}"),
        (chat(video_part(GIF, "image/gif")) | SOUND, part, f"{part}: {silent}"),
        (chat(video_part(video_file("AVI", "mpeg4"))) | SOUND, part, f"{part}: {silent}"),
        (
            chat(video_part(video_file("AVI", "mpeg4", sound="pcm_s16le"))) | SOUND,
            part,
            "unsupported audio codec '0x1'",
        ),
        (chat(video_part(WITH_SOUND), audio) | SOUND, option, "the chat contains videos and audio"),
        (chat({"type": "video_sound"}), "messages[0].content[0]", "invalid part type"),
        (chat() | unknown, "mm_processor_kwargs.size", "unknown"),
    ]
    for request, param, message in invalid:
        response = await gateway.post(CHAT, json=request)

        assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.json()
        assert message in response.json()["error"]["message"]


async def test_media_have_the_options_of_the_request(gateway: httpx.AsyncClient) -> None:
    wav, png = audio_file(sound(0)), image_file()
    image = {"type": "image_url", "image_url": {"url": data_url(png)}}
    audio = {"type": "audio_url", "audio_url": {"url": data_url(wav, "audio/wav")}}
    options = {
        "media_io_kwargs": {"video": {"fps": 1, "max_frames": 8}},
        "mm_processor_kwargs": {"max_pixels": 50000, "use_audio_in_video": False},
    }

    response = await gateway.post(CHAT, json=chat(video_part(MP4), image, audio) | options)

    video = describe("messages[0].content[0]", MP4, "2s")
    picture = describe("messages[0].content[1]", png, "8x6", "PNG")
    expected = [
        f"{video}:fps=1.0,max_frames=8,max_pixels=50000",
        f"{picture}:max_pixels=50000",
        describe("messages[0].content[2]", wav, "1s", "WAV"),
    ]
    assert response.json()["choices"][0]["message"]["content"].split() == expected


@pytest.mark.parametrize(
    ("options", "param", "code"),
    [
        ({"media_io_kwargs": {"video": {"fps": 0}}}, "media_io_kwargs.video.fps", "invalid_value"),
        (
            {"media_io_kwargs": {"video": {"min_frames": 9, "max_frames": 8}}},
            "media_io_kwargs.video.min_frames",
            "invalid_value",
        ),
        ({"media_io_kwargs": {"video": {"backend": "cuda"}}}, "media_io_kwargs.video.backend", "unknown_field"),
    ],
)
async def test_an_invalid_option_of_media_is_a_400_that_names_it(
    gateway: httpx.AsyncClient, options: dict[str, object], param: str, code: str
) -> None:
    response = await gateway.post(CHAT, json=chat(video_part(MP4)) | options)

    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)


@pytest.mark.parametrize(
    ("options", "param", "code"),
    [
        ({"media_io_kwargs": {"video": {"fps": 31}}}, "media_io_kwargs.video.fps", "invalid_value"),
        ({"media_io_kwargs": {"video": {"num_frames": 0}}}, "media_io_kwargs.video.num_frames", "invalid_value"),
        ({"media_io_kwargs": {"video": {"num_frames": -2}}}, "media_io_kwargs.video.num_frames", "invalid_value"),
        ({"media_io_kwargs": {"video": {"max_frames": 769}}}, "media_io_kwargs.video.max_frames", "invalid_value"),
        ({"media_io_kwargs": {"image": {}}}, "media_io_kwargs.image", "unknown_field"),
        ({"mm_processor_kwargs": {"fps": 2}}, "mm_processor_kwargs.fps", "unknown_field"),
        ({"mm_processor_kwargs": {"max_pixels": 0}}, "mm_processor_kwargs.max_pixels", "invalid_value"),
        (
            {"mm_processor_kwargs": {"min_pixels": 9, "max_pixels": 8}},
            "mm_processor_kwargs.min_pixels",
            "invalid_value",
        ),
        ({"mm_processor_kwargs": {"max_patches": 0}}, "mm_processor_kwargs.max_patches", "invalid_value"),
        (
            {"mm_processor_kwargs": {"min_patches": 9, "max_patches": 8}},
            "mm_processor_kwargs.min_patches",
            "invalid_value",
        ),
    ],
)
def test_an_invalid_option_of_media_is_named(options: dict[str, object], param: str, code: str) -> None:
    error = refusal(ChatCompletionRequest.model_validate, chat({"type": "text", "text": "x"}) | options)

    assert (error.param, error.code) == (param, code)
