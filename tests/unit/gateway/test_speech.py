"""`/v1/audio/speech`, through the official client and raw JSON."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, BadRequestError

from cornserve.gateway.endpoints.openai.speech import CreateSpeechRequest
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import CHAT, SPEAKER

SPEECH = "/v1/audio/speech"


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def speaker(deploy_for_module: Deploy) -> None:
    await deploy_for_module(SPEAKER)


async def test_the_official_client_gets_an_audio_file(openai: AsyncOpenAI) -> None:
    response = await openai.audio.speech.create(
        model="speaker",
        input="corn",
        voice="3",
        response_format="flac",
        speed=1.5,
        extra_body={"seed": 7},
    )

    assert response.content == b"input=corn voice=3 response_format=flac speed=1.5 seed=7 "
    assert response.response.headers["content-type"] == "audio/flac"
    assert response.response.headers["x-request-id"]


async def test_the_official_client_streams_the_file(openai: AsyncOpenAI) -> None:
    async with openai.audio.speech.with_streaming_response.create(
        model="speaker", input="corn", voice="default", extra_body={"seed": 7}
    ) as response:
        parts = [part async for part in response.iter_bytes()]

    assert b"".join(parts) == b"input=corn seed=7 "
    assert response.headers["content-type"] == "audio/mpeg"


async def test_events_contain_the_file_and_the_usage(gateway: httpx.AsyncClient) -> None:
    response = await gateway.post(SPEECH, json={"model": "speaker", "input": "corn", "seed": 7, "stream_format": "sse"})

    names = [line.removeprefix("event: ") for line in response.text.splitlines() if line.startswith("event: ")]
    *deltas, done = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert names == [event["type"] for event in [*deltas, done]]
    assert b"".join(b64decode(event["audio"]) for event in deltas) == b"input=corn seed=7 "
    assert {(event["type"], event["sample_rate"]) for event in deltas} == {("speech.audio.delta", 16_000)}
    usage = {"input_tokens": 5, "output_tokens": 16, "total_tokens": 21}
    assert done == {"type": "speech.audio.done", "seconds": 2.5, "usage": usage}


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": None}, "input", "missing field: 'input'"),
        ({"speed": 5}, "speed", "less than or equal to 4, not 5"),
        ({"instructions": "whisper"}, "instructions", "unknown or unsupported field"),
    ],
)
async def test_an_invalid_request_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, fields: dict[str, Any], param: str, message: str
) -> None:
    response = await gateway.post(SPEECH, json={"model": "speaker", "input": "corn"} | fields)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": ""}, "input", "at least 1 character"),
        ({"input": "x" * 4097}, "input", "at most 4096 characters"),
        ({"voice": 3}, "voice", "string"),
        ({"response_format": "ogg"}, "response_format", "'mp3', 'opus', 'aac', 'flac', 'wav' or 'pcm', not 'ogg'"),
        ({"speed": 0.2}, "speed", "greater than or equal to 0.25, not 0.2"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"stream_format": "websocket"}, "stream_format", "'audio' or 'sse', not 'websocket'"),
    ],
)
def test_an_invalid_request_names_the_field(fields: dict[str, Any], param: str, message: str) -> None:
    error = refusal(CreateSpeechRequest.model_validate, {"model": "speaker", "input": "corn"} | fields)

    assert message in error.message
    assert error.param == param


async def test_a_model_that_cannot_speak_is_a_400(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(CHAT)

    with pytest.raises(BadRequestError, match="does not support /v1/audio/speech: call it with POST /v1/chat"):
        await openai.audio.speech.create(model="parrot", input="corn", voice="default")
    with pytest.raises(BadRequestError, match="call it with POST /v1/audio/speech"):
        await openai.embeddings.create(model="speaker", input="x")


async def test_an_app_without_audio_is_an_error(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(SPEAKER.replace("audio=output.words.map(speak), ", "").replace('"speaker"', '"mute"'))

    response = await gateway.post(SPEECH, json={"model": "mute", "input": "corn"})

    assert (response.status_code, response.json()["error"]["code"]) == (500, "no_audio")


async def test_a_failure_after_the_first_audio_closes_the_connection(
    gateway: httpx.AsyncClient, deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    await deploy(
        SPEAKER.replace("def speak(word):", "def speak(word):\n    assert '=' in word").replace('"speaker"', '"broken"')
    )
    body = {"model": "broken", "input": "corn corn"}

    with pytest.raises(httpx.RemoteProtocolError):
        await gateway.post(SPEECH, json=body)
    assert "uvicorn.error" not in {record.name for record in caplog.records}
    response = await gateway.post(SPEECH, json=body | {"stream_format": "sse"})

    assert "event: error" in response.text
