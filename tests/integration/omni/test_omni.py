"""A whole Omni model on transformers: its speech equals that of the separate talker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import pytest_asyncio

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.media.grey_image import GREY_IMAGE
from cornserve_executors.omni.stats import OmniStats
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.media import MediaPart
from cornserve_tasklib.messages import ChatMessage
from cornserve_tasklib.omni import OmniOptions, OmniTask
from cornserve_tasklib.speaking_chat import SpokenChatRequest
from cornserve_tasklib.talker import SAMPLE_RATE, SpokenChunk, TalkerOptions, TalkerRequest, TalkerTask
from tests.integration.docs.documented_metrics import documented_metrics
from tests.integration.talker.reference import samples_of
from tests.models.tiny_families import tiny_model
from tests.waiting import until

if TYPE_CHECKING:
    from cornserve_executors.omni.engine import OmniEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    # The penalty concerns generated codes only.
    pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`:UserWarning"),
]

FRAMES = 40
CODES_PER_SECOND = 50
"""The rate of a Qwen2.5-Omni."""


def value(stats: OmniStats, name: str) -> float:
    samples = {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}
    return samples[f"cornserve_omni_{name}"]


def request(question: str = "hello", **fields: Any) -> SpokenChatRequest:
    chat = {"messages": [{"role": "user", "content": question}], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    given: dict[str, Any] = {"chat": ChatRequest.model_validate(chat | fields.pop("chat", {})), "temperature": 0}
    return SpokenChatRequest(**given | fields)


@pytest.fixture(scope="module")
def stats() -> OmniStats:
    return OmniStats()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_qwen3omni_talker: Path, stats: OmniStats) -> AsyncIterator[OmniEngine]:
    from cornserve_executors.omni.engine import OmniEngine

    options = OmniOptions(max_tokens=4000, max_frames=FRAMES + 1)  # transformers does not return the last frame.
    engine = OmniEngine(OmniTask(model_id=str(tiny_qwen3omni_talker), options=options), stats)
    await engine.warm_up()
    yield engine
    engine.shutdown()


async def test_the_speech_equals_that_of_a_separate_talker(engine: OmniEngine, tiny_qwen3omni_talker: Path) -> None:
    from cornserve_executors.talker.engine import TalkerEngine

    chunks: list[SpokenChunk] = []

    async def send(chunk: SpokenChunk) -> None:
        chunks.append(chunk)

    response = await engine.respond(request(voice="Ethan"), send)
    options = TalkerOptions(max_tokens=2 * FRAMES)
    talker = TalkerEngine.load(TalkerTask(model_id=str(tiny_qwen3omni_talker), options=options), TalkerStats())
    work = asyncio.create_task(talker.run())
    # transformers does not speak the last token.
    spoken = TalkerRequest(user_messages=["hello"], token_ids=response.token_ids[:-1], voice="ethan", temperature=0)
    expected = samples_of((await talker.speak(spoken, "separate")).audio)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    talker.shutdown()

    found = samples_of(response.audio)
    assert len(response.token_ids) == response.usage.completion_tokens == 8
    assert response.finish_reason == "length"
    assert response.audio == chunks[0].pcm
    assert response.seconds == len(found) / SAMPLE_RATE > 3
    assert np.abs(found - expected[: len(found)]).max() < 1.1 / 32767  # Both are rounded.


async def test_text_alone_does_not_run_the_talker(engine: OmniEngine) -> None:
    spoken, text = await engine.respond(request()), await engine.respond(request(modalities=["text"]))

    assert text.token_ids == spoken.token_ids
    assert (text.audio, text.seconds) == ("", 0)


async def test_a_whole_qwen25_omni_speaks_about_an_image(tiny_qwen25omni_talker: Path) -> None:
    from cornserve_executors.omni.engine import OmniEngine

    codes = 10
    options = OmniOptions(max_tokens=8, max_frames=codes)
    engine = OmniEngine(OmniTask(model_id=str(tiny_qwen25omni_talker), options=options), OmniStats())
    message = ChatMessage(role="user", content=[MediaPart(type="media", media=GREY_IMAGE)])

    response = await engine.respond(request(chat={"messages": [message]}, voice="ethan", temperature=0.9, seed=1))
    engine.shutdown()

    assert len(response.token_ids) == 8
    assert response.seconds == codes / CODES_PER_SECOND


@pytest.mark.slow
async def test_a_seed_gives_the_same_response(engine: OmniEngine) -> None:
    sampled = request(chat={"temperature": 1.0}, temperature=1.0, seed=3)

    first, second = await engine.respond(sampled), await engine.respond(sampled)
    other = await engine.respond(sampled.model_copy(update={"seed": 4}))

    assert (first.token_ids, first.audio, first.seed) == (second.token_ids, second.audio, 3)
    assert first.token_ids != other.token_ids


async def test_a_cancelled_request_stops_at_the_next_token(engine: OmniEngine, stats: OmniStats) -> None:
    long = asyncio.create_task(engine.respond(request(chat={"max_tokens": 4000})))
    await until(lambda: value(stats, "requests") == 1)
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)

    response = await engine.respond(request(chat={"max_tokens": 1}, modalities=["text"]))

    assert len(response.token_ids) == 1
    assert value(stats, "requests") == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "alice"}, "voice: the model has no voice 'alice': use chelsie, ethan"),
        ({"chat": {"max_tokens": 4001}}, r"max_tokens: must be at most 4000 for this app \(max_tokens\), not 4001"),
        ({"chat": {"stop": ["x"]}}, "stop: the whole model does not support it: remove the field"),
        ({"chat": {"logprobs": True}}, "logprobs: the whole model does not support it"),
    ],
)
async def test_an_unsupported_request_is_rejected(engine: OmniEngine, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await engine.respond(request(**fields))


async def test_the_metrics_are_documented(stats: OmniStats) -> None:
    found = {(metric.name, metric.type, frozenset[str]()) for metric in stats.metrics()}

    assert found == documented_metrics("## Whole Omni models")


async def test_a_model_that_cannot_speak_is_rejected() -> None:
    from cornserve_executors.omni.model import OmniModel

    with pytest.raises(ExecutorStartError, match=r"cannot speak: use a Qwen2\.5-Omni or a Qwen3-Omni with a talker"):
        OmniModel(OmniTask(model_id=str(tiny_model("qwen3omni"))), "cpu")
