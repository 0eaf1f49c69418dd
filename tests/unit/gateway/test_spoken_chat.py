"""`/v1/chat/completions` with audio, through the official client and raw JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest
from tests.images import encode_file, noise
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import CHAT, SPEAKING_PARROT

APP = "speaking-parrot"
AUDIO: dict[str, Any] = {"modalities": ["text", "audio"], "audio": {"voice": "ethan", "format": "pcm16"}}
USER = {"role": "user", "content": "hello there"}


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def speaking_parrot(deploy_for_module: Deploy) -> None:
    await deploy_for_module(SPEAKING_PARROT)


async def complete(gateway: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await gateway.post("/v1/chat/completions", json={"model": APP, "messages": [USER], **fields})


async def test_the_official_client_gets_text_and_audio(openai: AsyncOpenAI) -> None:
    completion = await openai.chat.completions.create(
        model=APP,
        messages=[{"role": "user", "content": "hello there"}],
        modalities=["text", "audio"],
        audio={"voice": "ethan", "format": "wav"},
    )

    (choice,) = completion.choices
    audio = choice.message.audio
    assert audio is not None
    assert choice.message.content is None
    assert (audio.transcript, b64decode(audio.data)) == ("hello there", b"ethan wav hello there")
    assert audio.id.startswith("audio_")
    assert audio.expires_at == completion.created
    assert choice.finish_reason == "stop"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (3, 2)


async def test_the_official_client_streams_the_transcript_and_the_audio(openai: AsyncOpenAI) -> None:
    stream = await openai.chat.completions.create(
        model=APP,
        messages=[{"role": "user", "content": "hello there"}],
        modalities=["text", "audio"],
        audio={"voice": "ethan", "format": "pcm16"},
        stream=True,
        stream_options={"include_usage": True},
    )

    *chunks, last = [chunk async for chunk in stream]

    (first, *others) = [chunk.choices[0] for chunk in chunks]
    deltas = [choice.delta.audio for choice in (first, *others) if choice.delta.audio is not None]
    assert first.delta.role == "assistant"
    assert "".join(delta.transcript or "" for delta in deltas) == "hello there"
    assert [b64decode(delta.data) for delta in deltas if delta.data] == [b"ethan", b"pcm", b"hello", b"there"]
    assert len({delta.id for delta in deltas}) == 1
    assert deltas[-1].expires_at == last.created
    assert [choice.finish_reason for choice in others] == [*[None] * (len(others) - 1), "stop"]
    assert last.usage is not None
    assert last.usage.total_tokens == 5


@pytest.mark.parametrize("fields", [{}, {"modalities": ["text"]}])
async def test_a_request_for_text_is_not_spoken(gateway: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    body = (await complete(gateway, **fields)).json()
    events = (await complete(gateway, **fields, stream=True)).text

    message = body["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "hello there", "refusal": None}
    assert '"content":"hello there"' in events
    assert "audio" not in events


async def test_a_speech_that_was_cut_has_the_finish_reason_length(gateway: httpx.AsyncClient) -> None:
    message = {"role": "user", "content": "a text that is too long"}

    body = (await complete(gateway, **AUDIO, messages=[message])).json()

    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"modalities": ["text", "audio"]}, "audio", "is required for the modality 'audio'"),
        (AUDIO | {"n": 2}, "n", "only one choice can be spoken"),
        (AUDIO | {"messages": [{"role": "system", "content": "x"}]}, "messages", "a user message is missing"),
        (
            AUDIO | {"messages": [USER, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]},
            "messages[1].audio",
            "send its transcript as the content",
        ),
    ],
)
async def test_an_invalid_request_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, fields: dict[str, Any], param: str, message: str
) -> None:
    response = await complete(gateway, **fields)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"audio": {"voice": "ethan", "format": "wav"}}, "audio", 'needs modalities: ["text", "audio"]'),
        ({"modalities": ["audio"]}, "modalities", "a response always has a text"),
        (AUDIO | {"audio": {"voice": "ethan", "format": "ogg"}}, "audio.format", "'aac' or 'pcm16', not 'ogg'"),
        (AUDIO | {"audio": {"format": "wav"}}, "audio.voice", "missing field: 'audio.voice'"),
        (AUDIO | {"audio": {"voice": "x", "format": "wav"}, "stream": True}, "audio", "has the format 'pcm16'"),
    ],
)
def test_an_invalid_request_names_the_field(fields: dict[str, Any], param: str, message: str) -> None:
    error = refusal(ChatCompletionRequest.model_validate, {"model": APP, "messages": [USER]} | fields)

    assert message in error.message
    assert (error.param, error.code) == (param, "invalid_value")


async def test_a_model_that_cannot_speak_is_a_400(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)

    response = await complete(gateway, **AUDIO, model="parrot")

    error = response.json()["error"]
    assert response.status_code == 400
    assert error["message"] == "modalities: the app 'parrot' cannot speak: use [\"text\"]"
    assert (error["param"], error["code"]) == ("modalities", "invalid_value")


async def test_native_calls_and_chat_completions_contain_media(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    text = "text = request.chat.messages[-1].content"
    assert text in SPEAKING_PARROT
    formats = "text = ','.join(medium.format for medium in request.chat.media)"
    await deploy(SPEAKING_PARROT.replace(text, formats).replace('"speaking-parrot"', '"viewer"'))
    image = b64encode(encode_file(noise(1, 8, 8))).decode()
    message = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}],
    }

    native = await gateway.post("/v1/apps/viewer/invoke", json={"chat": {"messages": [message]}, "voice": "ethan"})
    completion = await complete(gateway, model="viewer", messages=[message])

    assert native.json()["message"]["text"] == "PNG"
    assert completion.json()["choices"][0]["message"]["content"] == "PNG"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_app_without_audio_is_an_error(gateway: httpx.AsyncClient, deploy: Deploy, stream: bool) -> None:
    whole = "audio=words.map(speak), message=message, speech=TalkerResponse(audio=audio, finish_reason=reason)"
    assert whole in SPEAKING_PARROT
    await deploy(SPEAKING_PARROT.replace(whole, "message=message").replace('"speaking-parrot"', '"mute"'))

    response = await complete(gateway, **AUDIO, stream=stream, model="mute")

    assert "the app has responded without audio" in response.text
    assert '"code":"no_audio"' in response.text
    assert stream or response.status_code == 500
