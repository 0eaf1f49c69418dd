"""A Qwen3-Omni that speaks its responses, served by a complete instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cornserve.client import Client, StreamItem
from tests.integration.serving.conftest import CommandLine
from tests.integration.talker.reference import TransformersSpeech, samples_of

APP = "speaker"
TOKENS = 12
MAX_TOKENS = 80
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
PROMPT_TOKENS = 19
"""The user's message with its role and its end, the header of the response, and the voice."""


@pytest.fixture(scope="module", autouse=True)
def speaker(cornserve: CommandLine, tiny_qwen3omni_talker: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = tmp_path_factory.mktemp("apps") / "speaker.py"
    source.write_text(
        "from cornserve import App\n"
        "from cornserve_tasklib import EngineOptions, SpeakingChat, TalkerOptions\n"
        f"chat = SpeakingChat(model_id={str(tiny_qwen3omni_talker)!r}, "
        f"options=EngineOptions(dtype='float32'), talker_options=TalkerOptions(max_tokens={MAX_TOKENS}))\n"
        f"app = App(name={APP!r}, paths=[chat])\n"
    )
    deployed = cornserve.run("deploy", str(source))
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
    found = samples_of(last.response["pcm"])
    assert len(found) == len(expected.samples)
    assert np.abs(found - expected.samples).max() < 1 / 32767
    chunks = [samples_of(item.item["pcm"]) for item in items if isinstance(item, StreamItem)]
    assert (np.concatenate(chunks) == found).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "alice"}, "the model has no voice 'alice': use chelsie, ethan"),
        ({"chat": {"messages": CHAT[:1]}}, "a user message is missing: add one"),
        ({"chat": {"messages": CHAT, "n": 2}}, "only one choice can be spoken"),
        (
            {
                "chat": {
                    "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
                }
            },
            "the response to media cannot be spoken",
        ),
    ],
)
def test_an_invalid_request_is_rejected(cornserve: CommandLine, fields: dict[str, Any], message: str) -> None:
    response = httpx.post(f"{cornserve.url}/v1/apps/{APP}/invoke", json=request(**fields), timeout=60)

    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert message in error["message"]
    assert error["param"] in (None, "chat")  # The gateway does not know the fields of an app's own request type.
