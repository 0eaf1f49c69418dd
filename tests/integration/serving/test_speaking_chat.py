"""A Qwen3-Omni that speaks its responses, served by a complete instance."""

from __future__ import annotations

import math
import wave
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from openai import BadRequestError, OpenAI

from cornserve.client import Client, StreamItem
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import sum_metric, text_part, video_part
from tests.integration.serving.speaking_chats import MEDIA_CHATS, MediaChat, speech_options
from tests.integration.talker.reference import TransformersSpeech, samples_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

APP = "speaker"
SPLIT_APP = "split-speaker"
"""An app with encoders in separate executors."""
VOCODER_APP = "vocoder-speaker"
"""An app with talker and vocoder in separate executors."""
TOKENS = 12
FRAME_SAMPLES = 1920
MAX_TOKENS = 80
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
PROMPT_TOKENS = 19
"""The user's message with its role and its end, the header of the response, and the voice."""


@pytest.fixture(scope="module", autouse=True)
def speaker(cornserve: CommandLine, tiny_qwen3omni_talker: Path) -> None:
    deploy(cornserve, tiny_qwen3omni_talker, APP, "speech")


@pytest.fixture(scope="module")
def separate_speakers(cornserve: CommandLine, tiny_qwen3omni_talker: Path) -> None:
    """Apps of the model whose encoders, or whose vocoder, are in separate executors."""
    deploy(cornserve, tiny_qwen3omni_talker, SPLIT_APP, "e-speech")
    deploy(cornserve, tiny_qwen3omni_talker, VOCODER_APP, "speech-split")


@pytest.fixture(params=[APP, pytest.param(VOCODER_APP, marks=pytest.mark.slow)])
def app(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name != APP:
        request.getfixturevalue("separate_speakers")
    return name


def deploy(cornserve: CommandLine, model: Path, app: str, path: str) -> None:
    deployed = cornserve.run("deploy", str(model), "--name", app, *speech_options(path, MAX_TOKENS))
    assert deployed.returncode == 0, deployed.stderr


def request(**fields: Any) -> dict[str, Any]:
    chat = {"messages": CHAT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    return {"chat": chat, "voice": "chelsie", "temperature": 0, **fields}


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`:UserWarning")
def test_text_and_speech_equal_those_of_transformers(cornserve: CommandLine, tiny_qwen3omni_talker: Path) -> None:
    expected = TransformersSpeech(tiny_qwen3omni_talker).speak(CHAT, "Chelsie", TOKENS, MAX_TOKENS - PROMPT_TOKENS)

    with Client(cornserve.url) as client:
        *items, last = client.stream(APP, request())

    assert not isinstance(last, StreamItem)
    found = samples_of(last.response["speech"]["audio"])
    assert len(found) == len(expected.samples)
    assert np.abs(found - expected.samples).max() < 1 / 32767
    chunks = [samples_of(item.item["pcm"]) for item in items if isinstance(item, StreamItem)]
    assert (np.concatenate(chunks) == found).all()


@pytest.mark.slow
@pytest.mark.usefixtures("separate_speakers")
@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`:UserWarning")
def test_speech_about_media_equals_that_of_transformers(cornserve: CommandLine, tiny_qwen3omni_talker: Path) -> None:
    reference = TransformersSpeech(tiny_qwen3omni_talker)

    def respond(app: str, chat: MediaChat) -> dict[str, Any]:
        with Client(cornserve.url) as client:
            fields = {"messages": chat.messages, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
            response: dict[str, Any] = client.invoke(app, request(chat=fields))
            return response

    with ThreadPoolExecutor() as threads:
        work = {
            (app, name): threads.submit(respond, app, chat)
            for name, chat in MEDIA_CHATS.items()
            for app in (APP, SPLIT_APP, APP)
        }
    for (_, name), response in work.items():
        chat, found = MEDIA_CHATS[name], samples_of(response.result()["speech"]["audio"])
        frames = math.ceil(len(found) / FRAME_SAMPLES)
        expected = reference.speak(chat.for_transformers, "Chelsie", TOKENS, frames, chat.images, chat.audio)
        assert response.result()["message"]["token_ids"] == expected.tokens, name
        assert len(found) == len(expected.samples) > 20 * FRAME_SAMPLES
        assert np.abs(found - expected.samples).max() < 1 / 32767, name


@pytest.mark.slow
@pytest.mark.usefixtures("separate_speakers")
def test_a_vocoder_in_its_own_executor_decodes_the_same_speech(cornserve: CommandLine) -> None:
    given = request(seed=1, temperature=0.9, response_format="wav")

    with Client(cornserve.url) as client:
        expected = client.invoke(APP, given)
        whole = client.invoke(VOCODER_APP, given)
        *items, last = client.stream(VOCODER_APP, given)

    assert whole["message"]["text"] == expected["message"]["text"]
    assert whole["speech"] == expected["speech"]
    assert not isinstance(last, StreamItem)
    assert last.response["speech"] == expected["speech"]
    chunks = [item.item["pcm"] for item in items if isinstance(item, StreamItem)]
    with wave.open(BytesIO(b64decode(expected["speech"]["audio"]))) as file:
        assert b"".join(map(b64decode, chunks)) == file.readframes(file.getnframes())
    assert len(chunks) > 3


@pytest.mark.slow
def test_the_official_client_gets_the_text_and_the_same_speech(cornserve: CommandLine) -> None:
    with Client(cornserve.url) as client:
        expected = client.invoke(APP, request(seed=1, temperature=0.9))
    samples = b64decode(expected["speech"]["audio"])
    given: dict[str, Any] = {
        "model": APP,
        "messages": CHAT,
        "max_tokens": TOKENS,
        "temperature": 0,
        "seed": 1,
        "modalities": ["text", "audio"],
        "extra_body": {"ignore_eos": True},
    }

    with OpenAI(base_url=f"{cornserve.url}/v1", api_key="none") as openai:
        completion = openai.chat.completions.create(**given, audio={"voice": "chelsie", "format": "wav"})
        *chunks, _ = openai.chat.completions.create(
            **given, audio={"voice": "chelsie", "format": "pcm16"}, stream=True, stream_options={"include_usage": True}
        )
        text = openai.chat.completions.create(**given | {"modalities": ["text"]})
        with pytest.raises(BadRequestError, match=r"audio\.voice: the model has no voice 'alloy': use chelsie, ethan"):
            openai.chat.completions.create(**given, audio={"voice": "alloy", "format": "wav"})

    audio = completion.choices[0].message.audio
    assert audio is not None
    with wave.open(BytesIO(b64decode(audio.data))) as file:
        whole = file.readframes(file.getnframes())
        assert file.getframerate() == 24_000
    deltas = [chunk.choices[0].delta.audio for chunk in chunks]
    streamed = b"".join(b64decode(delta.data) for delta in deltas if delta is not None and delta.data)
    assert whole == streamed == samples
    assert audio.transcript == text.choices[0].message.content == expected["message"]["text"]
    transcripts = [delta.transcript for delta in deltas if delta is not None and delta.transcript]
    assert "".join(transcripts) == audio.transcript
    assert completion.usage is not None
    assert completion.usage.completion_tokens == TOKENS


@pytest.mark.slow
def test_the_command_line_saves_the_speech(cornserve: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "hi.wav"
    chat = ("chat", APP, "hello", "--max-tokens", "4", "--voice")

    saved = cornserve.run(*chat, "chelsie", "--save", str(file))
    unknown = cornserve.run(*chat, "alloy", "--save", str(file))
    nameless = cornserve.run(*chat, "chelsie", "--save", str(tmp_path / "hi.txt"))

    assert saved.returncode == 0, saved.stderr
    assert saved.stdout.splitlines()[-1] == str(file)
    with wave.open(str(file)) as audio:
        assert audio.getnframes() > 0
    assert "the model has no voice 'alloy': use chelsie, ethan" in unknown.stderr
    assert "give a file name that ends with .mp3" in nameless.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("separate_speakers")
@pytest.mark.parametrize("has_sound", [False, True])
def test_the_official_client_gets_the_same_speech_about_a_video_on_each_path(
    cornserve: CommandLine, *, has_sound: bool
) -> None:
    video = video_part(8, 64, 64, sound="aac") if has_sound else video_part(8, 64, 64)
    messages: Any = [{"role": "user", "content": [text_part("this?"), video]}]
    given: dict[str, Any] = {
        "messages": messages,
        "max_tokens": 2,
        "modalities": ["text", "audio"],
        "extra_body": {
            "media_io_kwargs": {"video": {"min_frames": 4, "max_frames": 4}},
            "mm_processor_kwargs": {"use_audio_in_video": has_sound, "min_pixels": 4096, "max_pixels": 8192},
        },
    }

    with OpenAI(base_url=f"{cornserve.url}/v1", api_key="none") as openai:
        completions = [
            openai.chat.completions.create(
                **given, model=app, temperature=0, seed=1, audio={"voice": "chelsie", "format": "wav"}
            )
            for app in (APP, SPLIT_APP, VOCODER_APP)
        ]

    first, *others = [completion.choices[0].message.audio for completion in completions]
    assert first is not None
    for other in others:
        assert other is not None
        assert other.data == first.data


@pytest.mark.slow
def test_audio_arrives_before_the_text_is_complete(cornserve: CommandLine) -> None:
    given: dict[str, Any] = {"model": APP, "messages": CHAT, "modalities": ["text", "audio"], "stream": True}
    limits: dict[str, Any] = {"max_tokens": 600, "extra_body": {"ignore_eos": True}}

    with OpenAI(base_url=f"{cornserve.url}/v1", api_key="none") as openai:
        with Client(cornserve.url) as client:
            client.invoke(APP, request())  # The first request connects the executors.
        stream = openai.chat.completions.create(**given, **limits, audio={"voice": "chelsie", "format": "pcm16"})
        deltas = [chunk.choices[0].delta.audio for chunk in stream]

    first_audio = next(n for n, delta in enumerate(deltas) if delta is not None and delta.data)
    last_text = max(n for n, delta in enumerate(deltas) if delta is not None and delta.transcript)
    assert first_audio < last_text


@pytest.mark.slow
def test_a_disconnect_stops_text_and_speech(cornserve: CommandLine, app: str) -> None:
    given: dict[str, Any] = {"model": app, "messages": CHAT, "modalities": ["text", "audio"], "stream": True}

    with OpenAI(base_url=f"{cornserve.url}/v1", api_key="none") as openai:
        stream = openai.chat.completions.create(
            **given, max_tokens=3000, audio={"voice": "chelsie", "format": "pcm16"}, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        assert sum_metric(cornserve, app, "cornserve_executor_invocations_running") > 0
        stream.close()

    wait_until(lambda: sum_metric(cornserve, app, "cornserve_executor_invocations_running") == 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "alice"}, "the model has no voice 'alice': use chelsie, ethan"),
        ({"chat": {"messages": CHAT[:1]}}, "a user message is missing: add one"),
        ({"chat": {"messages": CHAT, "n": 2}}, "only one choice can be spoken"),
    ],
)
def test_an_invalid_request_is_rejected(cornserve: CommandLine, app: str, fields: dict[str, Any], message: str) -> None:
    response = httpx.post(f"{cornserve.url}/v1/apps/{app}/invoke", json=request(**fields), timeout=60)

    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert message in error["message"]
    # The gateway does not know the fields of an app's own request type.
    assert error["param"] in (None, "chat.messages", "chat.n")
