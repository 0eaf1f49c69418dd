"""Vocoders in their own executors: speech equals that of an executor with talker and vocoder."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
import pytest_asyncio
from prometheus_client import Metric

from cornserve.concurrency import gather_all
from cornserve.task import TensorStream
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.talker.stats import TalkerStats
from cornserve_executors.talker.vocoder_stats import VocoderStats
from cornserve_tasklib.spoken_prompt import SpokenPrompt
from cornserve_tasklib.talker import (
    SpokenChunk,
    SpokenCodesInfo,
    TalkerOptions,
    TalkerRequest,
    TalkerResponse,
    TalkerTask,
    VocoderTask,
)
from tests.integration.docs.documented_metrics import documented_metrics

if TYPE_CHECKING:
    import torch

    from cornserve_executors.talker.constant_codes import ConstantCodesEngine
    from cornserve_executors.talker.decoded_speech import CodesPart
    from cornserve_executors.talker.engine import TalkerEngine
    from cornserve_executors.talker.prompt import ThinkerPrompt
    from cornserve_executors.talker.spoken_text import SpokenPart
    from cornserve_executors.talker.vocoder_engine import VocoderEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

Item = TypeVar("Item")

WIDTH = 128
CHAT = list(b"hello")
END_TOKEN = 258
"""The last token of responses of the tiny Qwen3-Omni."""
TEXTS = ["a small red boat", "yes"]


@dataclass
class Family:
    """The engines of a model."""

    is_qwen3: bool
    groups: int
    whole: TalkerEngine
    talker: TalkerEngine | ConstantCodesEngine
    """Without a vocoder."""
    vocoder: VocoderEngine
    stats: VocoderStats

    def request(self, text: str, **fields: object) -> TalkerRequest:
        given = {"user_messages": ["hello"], "token_ids": [*text.encode(), END_TOKEN]} if self.is_qwen3 else {}
        states = {} if self.is_qwen3 else {"states": TensorStream()}
        return TalkerRequest.model_validate({"seed": 1, **given, **states, **fields})

    async def speak(self, text: str, request: TalkerRequest) -> TalkerResponse:
        return await self.whole.speak(request, "whole", None, *self._inputs(text))

    async def parts(self, text: str, request: TalkerRequest) -> list[CodesPart]:
        """Returns what the talker publishes."""
        from cornserve_executors.talker.decoded_speech import CodesPart

        published: list[CodesPart] = []

        async def publish(codes: torch.Tensor, info: SpokenCodesInfo) -> None:
            published.append(CodesPart(info, codes))

        await self.talker.speak_codes(request, "codes", publish, *self._inputs(text))
        return published

    async def decode(self, parts: list[CodesPart], request: TalkerRequest) -> tuple[TalkerResponse, list[str]]:
        chunks: list[str] = []

        async def send(chunk: SpokenChunk) -> None:
            chunks.append(chunk.pcm)

        response = await self.vocoder.speak(_iterate(parts), request.response_format, send)
        return response, chunks

    def _inputs(self, text: str) -> tuple[AsyncIterator[SpokenPart] | None, ThinkerPrompt | None]:
        import torch

        from cornserve_executors.talker.prompt import ThinkerPrompt
        from cornserve_executors.talker.spoken_text import SpokenPart

        if self.is_qwen3:
            return None, None
        random = torch.Generator().manual_seed(len(text))
        prompt = ThinkerPrompt(SpokenPrompt(tokens=CHAT), torch.randn(len(CHAT), WIDTH, generator=random))
        tokens = text.encode()
        states = torch.randn(len(tokens), WIDTH, generator=random).unbind()
        return _iterate([SpokenPart(list(tokens), states)]), prompt


async def _iterate(items: list[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item


@pytest.fixture(
    scope="module", params=["tiny_qwen3omni_talker", pytest.param("tiny_qwen25omni_talker", marks=pytest.mark.slow)]
)
def model(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def family(model: Path) -> AsyncIterator[Family]:
    from cornserve_executors.talker.engine import TalkerEngine
    from cornserve_executors.talker.vocoder_engine import VocoderEngine

    is_qwen3, stats = "qwen3" in model.name, VocoderStats()
    whole = TalkerTask(model_id=str(model), options=TalkerOptions(max_tokens=90))
    alone = whole.model_copy(update={"with_vocoder": False})
    engines = TalkerEngine.load(whole, TalkerStats()), TalkerEngine.load(alone, TalkerStats())
    vocoder = VocoderEngine.load(VocoderTask(model_id=str(model)), stats)
    async with _running(engines[0]), _running(engines[1]), _running(vocoder):
        yield Family(is_qwen3, 4 if is_qwen3 else 1, *engines, vocoder, stats)


@asynccontextmanager
async def _running(engine: TalkerEngine | VocoderEngine) -> AsyncIterator[None]:
    work = asyncio.create_task(engine.run())
    await engine.warm_up()
    yield
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    engine.shutdown()


@pytest.mark.slow
async def test_the_speech_equals_that_of_one_executor(family: Family) -> None:
    requests = [(text, family.request(text, seed=seed, voice="Ethan")) for seed, text in enumerate(TEXTS)]
    expected = [await family.speak(text, request) for text, request in requests]

    published = await gather_all(family.parts(text, request) for text, request in requests)
    found = await gather_all(
        family.decode(parts, request) for parts, (_, request) in zip(published, requests, strict=True)
    )

    for (response, chunks), whole in zip(found, expected, strict=True):
        assert response == whole
        assert b"".join(map(b64decode, chunks)) == b64decode(whole.audio)
        assert len(chunks) > 1


async def test_a_talker_publishes_growing_chunks_of_codes_and_then_the_text(family: Family) -> None:
    import torch

    request = family.request("yes", voice="Ethan")

    *chunks, last = await family.parts("yes", request)

    shapes = [tuple(part.codes.shape) for part in chunks]
    assert shapes[:4] == [(family.groups, frames) for frames in (1, 2, 4, 8)]
    assert all(frames <= 16 for _, frames in shapes)
    assert {part.codes.dtype for part in chunks} == {torch.int64}
    assert {(part.info.voice, part.info.seed, part.info.text) for part in chunks} == {("ethan", 1, None)}
    spoken = await family.speak("yes", request)
    assert tuple(last.codes.shape) == (1,)
    assert (last.info.text, last.info.finish_reason) == (spoken.text, spoken.finish_reason)


@pytest.mark.slow
async def test_chunks_of_samples_do_not_depend_on_those_of_codes(family: Family) -> None:
    import torch

    request = family.request("yes")
    *parts, last = await family.parts("yes", request)
    codes = torch.cat([part.codes for part in parts], 1)
    expected = await family.decode([*parts, last], request)

    for frames in (1, codes.shape[1]):
        split = [replace(parts[0], codes=chunk) for chunk in codes.split(frames, 1)]
        assert await family.decode([*split, last], request) == expected


async def test_a_response_without_text_is_silent(family: Family) -> None:
    request = family.request("", response_format="wav")
    parts = await family.parts("", request)

    found = await family.decode(parts, request)

    assert len(parts) == 1
    assert found == (await family.speak("", request), [])


async def test_a_speech_without_an_end_fails(family: Family) -> None:
    request = family.request("yes")
    parts = await family.parts("yes", request)

    with pytest.raises(RuntimeError, match="the talker has not sent the end of its speech"):
        await family.decode(parts[:-1], request)


async def test_a_talker_rejects_an_unknown_voice(family: Family) -> None:
    with pytest.raises(InvalidRequestError, match="voice: the model has no voice 'alice': use chelsie, ethan"):
        await family.parts("yes", family.request("yes", voice="alice"))


async def test_the_input_source_of_a_vocoder_speaks_as_long_as_its_text(family: Family, model: Path) -> None:
    from cornserve_executors.talker.constant_codes import TOKEN_SECONDS, ConstantCodesEngine

    text = "a small red boat"
    constant = ConstantCodesEngine(TalkerTask(model_id=str(model), with_vocoder=False).input_source())
    source = replace(family, talker=constant)
    request = family.request(text)

    response, _ = await family.decode(await source.parts(text, request), request)

    assert response.seconds == pytest.approx(len(text) * TOKEN_SECONDS, abs=0.4)


async def test_the_metrics_count_speeches(family: Family) -> None:
    before = _values(family.stats)
    request = family.request("yes")

    response, _ = await family.decode(await family.parts("yes", request), request)

    after = _values(family.stats)
    assert after["running_speeches"] == 0
    assert after["speeches_total"] == before["speeches_total"] + 1
    assert after["audio_seconds_total"] == pytest.approx(before["audio_seconds_total"] + response.seconds)
    assert after["decode_seconds_count"] > before["decode_seconds_count"]


async def test_every_metric_is_documented() -> None:
    def described(metric: Metric) -> tuple[str, str, frozenset[str]]:
        labels = {label for sample in metric.samples for label in sample.labels}
        return metric.name, metric.type, frozenset(labels - {"le"})

    assert {described(metric) for metric in VocoderStats().metrics()} == documented_metrics("## Vocoders")


def _values(stats: VocoderStats) -> dict[str, float]:
    samples = [sample for metric in stats.metrics() for sample in metric.samples if "le" not in sample.labels]
    return {sample.name.removeprefix("cornserve_vocoder_"): sample.value for sample in samples}
