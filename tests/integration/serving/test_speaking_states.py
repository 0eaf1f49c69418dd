"""A Qwen2.5-Omni that speaks its responses: the talker reads the thinker's hidden states while they are computed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import OpenAI

from cornserve.client import Client
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.speaking_chats import MEDIA_CHATS, MediaChat, speech_options
from tests.integration.talker.reference import samples_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "states"
VOCODER_APP = "vocoder-states"
"""An app with talker and vocoder in separate executors."""
TOKENS = 12
MAX_TOKENS = 180
HEADER_TOKENS = 2
"""The start of the speech, and the first token of the text."""
SEED = 7
TEXT_CHAT = MediaChat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}])


@pytest.fixture(scope="module", autouse=True)
def speaker(cornserve: CommandLine, tiny_qwen25omni_talker: Path) -> None:
    for app, path in ((APP, "e-speech"), (VOCODER_APP, "speech-split")):
        options = ["--name", app, *speech_options(path, MAX_TOKENS)]
        deployed = cornserve.run("deploy", str(tiny_qwen25omni_talker), *options)
        assert deployed.returncode == 0, deployed.stderr


def request(chat: MediaChat, **fields: Any) -> dict[str, Any]:
    messages = {"messages": chat.messages, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    return {"chat": messages, "voice": "chelsie", "temperature": 0, "seed": SEED, **fields}


def test_text_and_speech_equal_those_of_transformers(cornserve: CommandLine, tiny_qwen25omni_talker: Path) -> None:
    from tests.integration.talker.repaired_qwen25 import RepairedSpeech

    reference = RepairedSpeech(tiny_qwen25omni_talker)
    chats = {**MEDIA_CHATS, "text": TEXT_CHAT}

    def respond(chat: MediaChat) -> dict[str, Any]:
        with Client(cornserve.url) as client:
            response: dict[str, Any] = client.invoke(APP, request(chat))
            return response

    with ThreadPoolExecutor() as threads:
        work = {name: threads.submit(respond, chat) for name, chat in chats.items()}
    for name, chat in chats.items():
        response = work[name].result()
        found = samples_of(response["speech"]["audio"])
        codes = MAX_TOKENS - response["message"]["usage"]["prompt_tokens"] - HEADER_TOKENS
        expected = reference.speak(
            chat.for_transformers, "Chelsie", TOKENS, codes, SEED, images=chat.images, audio=chat.audio
        )
        assert response["message"]["token_ids"] == expected.tokens, name
        assert len(found) == len(expected.samples) > 0, name
        assert np.abs(found - expected.samples).max() < 1e-3 * np.abs(expected.samples).max(), name


def test_a_vocoder_in_its_own_executor_decodes_the_same_speech(cornserve: CommandLine) -> None:
    with Client(cornserve.url) as client:
        whole, split = (client.invoke(app, request(TEXT_CHAT, temperature=0.9)) for app in (APP, VOCODER_APP))

    assert split["message"]["text"] == whole["message"]["text"]
    assert split["speech"] == whole["speech"]


def test_the_official_client_gets_audio_before_the_text_is_complete(cornserve: CommandLine) -> None:
    given: dict[str, Any] = {"model": APP, "messages": TEXT_CHAT.messages, "modalities": ["text", "audio"]}
    limits: dict[str, Any] = {"max_tokens": 3500, "extra_body": {"ignore_eos": True}}

    with OpenAI(base_url=f"{cornserve.url}/v1", api_key="none") as openai:
        stream = openai.chat.completions.create(
            **given, **limits, audio={"voice": "ethan", "format": "pcm16"}, stream=True
        )
        deltas = [chunk.choices[0].delta.audio for chunk in stream]

    first_audio = next(n for n, delta in enumerate(deltas) if delta is not None and delta.data)
    last_text = max(n for n, delta in enumerate(deltas) if delta is not None and delta.transcript)
    assert first_audio < last_text
