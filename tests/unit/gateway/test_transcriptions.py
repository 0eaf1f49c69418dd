"""`/v1/audio/transcriptions` and `/v1/audio/translations`, through the official client and raw forms."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, BadRequestError

from cornserve.gateway.endpoints.openai.transcriptions import TranscriptionForm
from cornserve.gateway.endpoints.read_form import Upload
from cornserve.limits import Limits
from tests.audio import audio_file, sound
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.metrics import sample
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import CHAT, SCRIBE

TRANSCRIPTIONS = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
WAV = audio_file(sound(0))
LONG = audio_file(sound(1, 12))
FLAC = audio_file(sound(1, 0.5), format="FLAC")
CODE_OR_NAME = "language: must be the code of a language, such as 'en' or 'en-GB', or its name, such as 'english'"


def describe(file: bytes, size: str, format: str = "WAV") -> str:
    return f"{format} {size} {sha256(file).hexdigest()[:8]}"


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    return GatewayOptions(Limits(audio_mib=1, audio_seconds=20, text_mib=1, body_mib=3))


MEDIA = 'cornserve_gateway_media_total{app="scribe",modality="audio"}'


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def scribe(deploy_for_module: Deploy) -> None:
    await deploy_for_module(SCRIBE)


async def send(gateway: httpx.AsyncClient, path: str = TRANSCRIPTIONS, file: Any = WAV, **fields: Any) -> Any:
    return await gateway.post(path, data={"model": "scribe"} | fields, files={"file": ("speech", file)})


async def test_the_official_client_gets_a_transcript(openai: AsyncOpenAI, gateway: httpx.AsyncClient) -> None:
    before = await sample(gateway, MEDIA)
    response = await openai.audio.transcriptions.create(
        model="scribe", file=("rede.wav", LONG), language="de-DE", prompt="Hallo", temperature=0.5
    )

    expected = f"{describe(LONG, '12')} language=de prompt=Hallo temperature=0.5 "
    assert response.text == expected
    assert response.usage is not None
    assert response.usage.model_dump() == {"type": "duration", "seconds": 12}
    assert await sample(gateway, MEDIA) == before + 1


async def test_a_translation_has_only_a_text(gateway: httpx.AsyncClient) -> None:
    response = await send(gateway, TRANSLATIONS, FLAC, to_language="en", seed="7")

    assert response.json() == {"text": f"{describe(FLAC, '0.5', 'FLAC')} seed=7 task=translate "}


@pytest.mark.parametrize("language", ["DE", "de-AT", "german"])
async def test_a_translation_has_the_code_of_its_language(gateway: httpx.AsyncClient, language: str) -> None:
    form = {"model": "scribe", "response_format": "verbose_json", "to_language": language}
    response = await gateway.post(TRANSLATIONS, data=form, files={"file": ("a.wav", WAV)})

    assert response.json()["language"] == "de"
    assert "to_language=de" in response.json()["text"]


async def test_fields_of_vllm_are_accepted(gateway: httpx.AsyncClient) -> None:
    without_effect = {
        "use_beam_search": "false",
        "n": "1",
        "length_penalty": "0.5",
        "include_stop_str_in_output": "true",
        "chunking_strategy": "auto",
    }
    form = {"model": "scribe", "language": " Haitian Creole ", "hotwords": "maize", "stream": "false", **without_effect}
    response = await gateway.post(TRANSCRIPTIONS, data=form, files={"file": ("a.wav", WAV)})

    assert response.status_code == 200, response.text
    assert response.json()["text"].endswith(" language=ht hotwords=maize ")


async def test_verbose_json_has_language_duration_and_segments(openai: AsyncOpenAI) -> None:
    response = await openai.audio.transcriptions.create(
        model="scribe",
        file=("a.wav", WAV),
        response_format="verbose_json",
        timestamp_granularities=["segment"],
    )

    assert (response.language, response.duration, response.segments) == ("en", 1.0, [])
    assert response.text == f"{describe(WAV, '1')} segments=True "


@pytest.mark.parametrize("granularities", [["word"], ["word", "segment"], ["segment", "word", "word"]])
async def test_verbose_json_has_the_timestamps_that_are_wanted(openai: AsyncOpenAI, granularities: list[Any]) -> None:
    response = await openai.audio.transcriptions.create(
        model="scribe",
        file=("a.wav", WAV),
        response_format="verbose_json",
        timestamp_granularities=granularities,
    )

    assert response.words == []
    assert response.segments == ([] if "segment" in granularities else None)
    assert response.text == f"{describe(WAV, '1')} segments=True words=True "


async def test_the_format_text_is_plain_text(openai: AsyncOpenAI, gateway: httpx.AsyncClient) -> None:
    text = await openai.audio.transcriptions.create(model="scribe", file=("a.wav", WAV), response_format="text")
    response = await send(gateway, response_format="text")

    assert str(text) == response.text == f"{describe(WAV, '1')} "
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_transcript_without_timestamps_is_one_subtitle(openai: AsyncOpenAI, gateway: httpx.AsyncClient) -> None:
    srt = await openai.audio.transcriptions.create(model="scribe", file=("a.wav", WAV), response_format="srt")
    vtt = await send(gateway, response_format="vtt")

    text = f"{describe(WAV, '1')} segments=True"
    assert str(srt) == f"1\n00:00:00,000 --> 00:00:01,000\n{text}\n"
    assert vtt.text == f"WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n{text}\n"
    assert vtt.headers["content-type"] == "text/vtt; charset=utf-8"


async def test_a_stream_has_the_events_of_the_official_client(openai: AsyncOpenAI) -> None:
    stream = await openai.audio.transcriptions.create(model="scribe", file=("a.wav", WAV), stream=True)
    *deltas, done = [event async for event in stream]

    expected = f"{describe(WAV, '1')} "
    assert [event.type for event in deltas] == ["transcript.text.delta"] * 3
    assert "".join(getattr(event, "delta", "") for event in deltas) == expected
    assert done.type == "transcript.text.done"
    assert done.text == expected


async def test_a_stream_has_the_chunks_of_vllm(gateway: httpx.AsyncClient) -> None:
    response = await send(gateway, TRANSLATIONS, stream="true", stream_include_usage="true")
    *events, done = [line.removeprefix("data: ") for line in response.text.split("\n\n")[:-1]]
    *chunks, last = map(json.loads, events)

    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"translation.chunk"}
    assert {chunk["model"] for chunk in chunks} == {"scribe"}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks).endswith(" task=translate ")
    assert last["choices"] == []
    assert {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}.items() <= last["usage"].items()


@pytest.mark.parametrize(
    ("file", "fields", "param", "message"),
    [
        (None, {}, "file", "missing field: 'file'"),
        (b"", {}, "file", "file: the file is empty"),
        (b"x" * 100, {}, "file", "file: unsupported audio format: send WAV, AIFF, MP3, AAC"),
        (WAV[:40], {}, "file", "file: truncated: the file ends in its header"),
        (audio_file(sound(0, 21)), {}, "file", "file: the audio takes 21.0 s (limit audio-seconds=20,"),
        (bytes((1 << 20) + 1), {}, "file", "file: the file has 1048577 bytes (limit audio-mib=1,"),
        (WAV, {"model": None}, "model", "missing field: 'model'"),
        (WAV, {"model": ""}, "model", "missing field: 'model'"),
        (WAV, {"language": "x-klingon"}, "language", CODE_OR_NAME),
        (WAV, {"vllm_xargs": "{}"}, "vllm_xargs", "no extension of vLLM that reads it"),
        (WAV, {"temperature": "1.5"}, "temperature", "less than or equal to 1, not '1.5'"),
        (WAV, {"prompt": b"\xff"}, "prompt", "not valid UTF-8"),
        (WAV, {"seed": ["1", "2"]}, "seed", "the form has the field twice"),
        (WAV, {"use_beam_search": "true"}, "use_beam_search", "is not supported: remove it"),
        (WAV, {"keywords": "maize"}, "keywords", "unknown or unsupported field"),
    ],
)
async def test_an_invalid_form_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, file: bytes | None, fields: dict[str, Any], param: str | None, message: str
) -> None:
    data = {name: value for name, value in ({"model": "scribe"} | fields).items() if value is not None}
    files = {"other": ("x", b"")} if file is None else {"file": ("speech", file)}
    response = await gateway.post(TRANSCRIPTIONS, data=data, files=files)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"language": "e"}, "language", CODE_OR_NAME),
        ({"watermarking": "true"}, "watermarking", "an app has watermarks by its --engine-arg"),
        ({"language": "en1"}, "language", CODE_OR_NAME),
        ({"temperature": "nan"}, "temperature", "finite number"),
        ({"prompt": "x" * 10_001}, "prompt", "at most 10000 characters"),
        (
            {"response_format": "ass"},
            "response_format",
            "'json', 'text', 'verbose_json', 'srt' or 'vtt', not 'ass'",
        ),
        ({"stream": "true", "response_format": "srt"}, "response_format", "srt cannot be streamed"),
        ({"timestamp_granularities[]": ["frame"]}, "timestamp_granularities[][0]", "'word', not 'frame'"),
        (
            {"timestamp_granularities[]": ["segment"]},
            "timestamp_granularities[]",
            "response_format is not verbose_json",
        ),
        (
            {"stream": "true", "response_format": "verbose_json"},
            "response_format",
            "verbose_json cannot be streamed",
        ),
        ({"stream_include_usage": "true"}, "stream_include_usage", "stream is false"),
        ({"n": "2"}, "n", "less than or equal to 1"),
        ({"to_language": "?"}, "to_language", CODE_OR_NAME),
        ({"chunking_strategy": "server_vad"}, "chunking_strategy", "must be 'auto', not 'server_vad'"),
    ],
)
def test_an_invalid_form_names_the_field(fields: dict[str, Any], param: str | None, message: str) -> None:
    form: dict[str, Any] = {"model": "scribe", "file": Upload(memoryview(WAV))}
    error = refusal(TranscriptionForm.model_validate, form | fields)

    assert message in error.message
    assert error.param == param


async def test_the_file_must_be_a_file(gateway: httpx.AsyncClient) -> None:
    response = await gateway.post(TRANSCRIPTIONS, files={"model": (None, "scribe"), "file": (None, "speech.wav")})

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "file")
    assert error["message"] == "file: must be a file, not 'speech.wav'"


FORM = "multipart/form-data; boundary=b"
PART = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nscribe\r\n'


@pytest.mark.parametrize(
    ("content_type", "body", "status", "message"),
    [
        ("application/json", b"{}", 415, "unsupported content type 'application/json': send a form"),
        ("multipart/form-data", b"", 400, "has no boundary"),
        (FORM, b"", 400, "does not begin with the boundary"),
        (FORM, PART, 400, "does not end with the boundary"),
        (FORM, b"--b\r\n\r\nx\r\n--b--", 400, "a part has no name"),
        (FORM, b"--b\r\ncontent-disposition: " + b"(" * 3000 + b"\r\n\r\nx\r\n--b--", 400, "a part has no name"),
        (FORM, b"--b\r\nno blank line\r\n--b--", 400, "the headers of a part are incomplete"),
        (FORM, PART * 65 + b"--b--", 400, "more than 64 parts"),
        (FORM, PART + b"--b--", 400, "missing field: 'file'"),
        (FORM, PART.replace(b"scribe", bytes(2 << 20)) + b"--b--", 413, "(limit text-mib=1,"),
    ],
)
async def test_a_body_that_is_not_a_form_is_a_4xx(
    gateway: httpx.AsyncClient, content_type: str, body: bytes, status: int, message: str
) -> None:
    response = await gateway.post(TRANSCRIPTIONS, content=body, headers={"content-type": content_type})

    assert response.status_code == status
    assert message in response.json()["error"]["message"]


async def test_a_form_may_have_a_preamble_and_quoted_names(gateway: httpx.AsyncClient) -> None:
    head = b'content-disposition: form-data; name="file"; filename="a \\"b\\".wav"\r\ncontent-type: text/x\r\n\r\n'
    body = b"preamble\r\n" + PART + b"--b\r\n" + head + WAV + b"\r\n--b--\r\nepilogue"

    response = await gateway.post(
        TRANSCRIPTIONS, content=body, headers={"content-type": 'multipart/form-data; boundary="b"'}
    )

    assert response.json()["text"] == f"{describe(WAV, '1')} "


async def test_an_app_without_transcriptions_is_a_400(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(CHAT)

    with pytest.raises(BadRequestError, match="does not support /v1/audio/transcriptions: call it with POST /v1/chat"):
        await openai.audio.transcriptions.create(model="parrot", file=("a.wav", WAV))
    with pytest.raises(BadRequestError, match="call it with POST /v1/audio/transcriptions"):
        await openai.embeddings.create(model="scribe", input="x")
