"""The talker of Qwen3-Omni: speech equals that of transformers' own `generate`, in any batch."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import pytest_asyncio
from prometheus_client import Metric
from pydantic import ValidationError

from cornserve.concurrency import gather_all
from cornserve.task import TensorStream
from cornserve_executors.base import ExecutorStartError, InvalidRequestError, OverloadedError
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.talker import SAMPLE_RATE, SpokenChunk, SpokenCodesInfo, TalkerOptions, TalkerRequest, TalkerTask
from tests.integration.docs.documented_metrics import documented_metrics
from tests.integration.talker.reference import TransformersSpeech, samples_of
from tests.models.tiny_families import tiny_model
from tests.waiting import until

if TYPE_CHECKING:
    from cornserve_executors.talker.engine import TalkerEngine
    from cornserve_executors.talker.spoken_text import SpokenPart

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MAX_TOKENS = 80
FRAME_SAMPLES = 1920
END_TOKEN = 258
"""The token `<|im_end|>` of the tiny model, whose other tokens are bytes."""
PROMPT_TOKENS = 9
"""The header of the response and the voice."""
MESSAGE_TOKENS = 5
"""The start, the role, two line breaks, and the end of a message."""
LOOKAHEAD_SAMPLES = 555
"""The samples that the vocoder's transposed convolutions need of the following frame."""


def request(text: str = "a small red boat", **fields: Any) -> TalkerRequest:
    given: dict[str, Any] = {"user_messages": ["hello"], "token_ids": [*text.encode(), END_TOKEN], "seed": 1}
    return TalkerRequest(**given | fields)


REQUESTS = [
    request(),
    request("yes", seed=2, temperature=0.0),
    request("one two three", seed=3, voice="Chelsie"),
    request("x", seed=4, user_messages=["what is the sea?", "and the sky?"]),
    request("twenty blue birds", seed=5, temperature=1.5),
    request(seed=6),
]


@pytest.fixture(scope="module")
def stats() -> TalkerStats:
    return TalkerStats()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_qwen3omni_talker: Path, stats: TalkerStats) -> AsyncIterator[TalkerEngine]:
    options = TalkerOptions(max_batch_speeches=4, max_tokens=MAX_TOKENS)
    async with running_engine(TalkerTask(model_id=str(tiny_qwen3omni_talker), options=options), stats) as engine:
        yield engine


@asynccontextmanager
async def running_engine(task: TalkerTask, stats: TalkerStats) -> AsyncIterator[TalkerEngine]:
    from cornserve_executors.talker.engine import TalkerEngine

    engine = TalkerEngine.load(task, stats)
    work = asyncio.create_task(engine.run())
    await engine.warm_up()
    yield engine
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    engine.shutdown()


@pytest.fixture(scope="module")
def reference(tiny_qwen3omni_talker: Path) -> TransformersSpeech:
    return TransformersSpeech(tiny_qwen3omni_talker)


async def pcm(engine: TalkerEngine, request: TalkerRequest, id: str = "r") -> str:
    return (await engine.speak(request, id)).audio


def value(stats: TalkerStats, name: str) -> float:
    samples = {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}
    return samples[f"cornserve_talker_{name}"]


@pytest.mark.slow
# The penalty concerns generated codes only.
@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`:UserWarning")
@pytest.mark.parametrize(
    ("messages", "voice", "tokens"),
    [
        ([("user", "hello")], "Ethan", 12),
        ([("system", "Be brief."), ("user", "hi"), ("assistant", "yes?"), ("user", "what?")], "Chelsie", 20),
    ],
)
async def test_speech_equals_that_of_transformers(
    engine: TalkerEngine, reference: TransformersSpeech, messages: list[tuple[str, str]], voice: str, tokens: int
) -> None:
    chat = [{"role": role, "content": text} for role, text in messages]
    users = [text for role, text in messages if role == "user"]
    length = MAX_TOKENS - PROMPT_TOKENS - sum(len(text) + MESSAGE_TOKENS for text in users)
    expected = reference.speak(chat, voice, tokens, length)

    response = await engine.speak(
        request(user_messages=users, token_ids=expected.tokens, voice=voice, temperature=0), "equal"
    )

    found = samples_of(response.audio)
    assert 0.01 < np.abs(expected.samples).max() < 0.999  # Neither silence nor clipped.
    assert len(found) == len(expected.samples)
    assert np.abs(found - expected.samples).max() < 1 / 32767
    assert response.seconds == len(found) / SAMPLE_RATE
    assert response.text.encode(errors="replace")  # Random tokens are not always UTF-8.


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`:UserWarning")
async def test_codes_equal_those_of_transformers(
    tiny_qwen3omni_talker: Path, reference: TransformersSpeech, stats: TalkerStats
) -> None:
    expected = reference.speak([{"role": "user", "content": "hello"}], "Ethan", 12, 40)
    task = TalkerTask(
        model_id=str(tiny_qwen3omni_talker), with_vocoder=False, options=TalkerOptions(max_tokens=MAX_TOKENS)
    )
    published: list[Any] = []

    async def publish(codes: Any, info: SpokenCodesInfo) -> None:
        if info.text is None:
            published.extend(codes.unbind(1))

    async with running_engine(task, stats) as engine:
        spoken = request(user_messages=["hello"], token_ids=expected.tokens, voice="Ethan", temperature=0)
        await engine.speak_codes(spoken, "codes", publish)

    assert len(expected.codes[0]) == 40
    assert [frame.tolist() for frame in published[:40]] == [list(frame) for frame in zip(*expected.codes, strict=True)]


@pytest.mark.parametrize("sizes", [[1] * 40, [1, 2, 4, 8, 16, 9]])
async def test_chunks_have_no_seams(
    tiny_qwen3omni_talker: Path, reference: TransformersSpeech, sizes: list[int]
) -> None:
    import torch

    from cornserve_executors.talker.loader import load_talker_model

    vocoder = load_talker_model(TalkerTask(model_id=str(tiny_qwen3omni_talker)), "cpu").vocoder
    module = reference.vocoder
    codes = torch.randint(0, 100, (4, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = module(codes[None])[0, 0]
        state = vocoder.start("ethan", 0)
        chunks = [vocoder.decode(state, part) for part in codes.split(sizes, 1)]

    assert len(torch.cat(chunks)) == len(whole) == 40 * FRAME_SAMPLES - LOOKAHEAD_SAMPLES
    assert len(chunks[0]) == sizes[0] * FRAME_SAMPLES - LOOKAHEAD_SAMPLES
    assert (torch.cat(chunks) - whole).abs().max() < 1e-5 * whole.abs().max()


async def test_the_captured_graphs_include_those_of_the_vocoder(
    engine: TalkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cornserve_executors.talker.qwen3_omni.vocoder import Code2Wav

    assert engine.captured_graphs == 0
    monkeypatch.setattr(Code2Wav, "captured_graphs", 5)
    assert engine.captured_graphs == 5


@pytest.mark.slow
async def test_a_failure_of_the_vocoder_fails_its_speech_only(
    engine: TalkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from cornserve_executors.talker.qwen3_omni.vocoder import Code2Wav

    expected = [await pcm(engine, request) for request in REQUESTS[:3]]
    vocoder = engine._model.vocoder
    assert isinstance(vocoder, Code2Wav)
    convolve, failures = vocoder._convolve, [torch.OutOfMemoryError("full")]

    def fail_once(hidden: torch.Tensor) -> torch.Tensor:
        samples = convolve(hidden)
        if failures and hidden.shape[-1] > 2:  # The second chunk of the first speech that gets so far.
            raise failures.pop()
        return samples

    monkeypatch.setattr(vocoder, "_convolve", fail_once)
    found = await asyncio.gather(
        *(pcm(engine, request, str(number)) for number, request in enumerate(REQUESTS[:3])), return_exceptions=True
    )

    assert [type(result) for result in found].count(OverloadedError) == 1
    assert all(isinstance(result, OverloadedError) or result == expected[index] for index, result in enumerate(found))


@pytest.mark.slow
async def test_a_seed_gives_the_same_speech_in_any_batch(engine: TalkerEngine, stats: TalkerStats) -> None:
    alone = [await pcm(engine, request) for request in REQUESTS]
    frames, batches = value(stats, "frames_total"), value(stats, "batch_speeches_count")

    together = await gather_all(pcm(engine, request, str(number)) for number, request in enumerate(REQUESTS))

    assert together == alone
    assert len(set(alone)) == len(REQUESTS)
    # Speeches that run alone have one step for each frame.
    assert value(stats, "batch_speeches_count") - batches < (value(stats, "frames_total") - frames) / 2


async def test_the_first_chunk_is_short(engine: TalkerEngine) -> None:
    chunks: list[str] = []

    async def send(chunk: SpokenChunk) -> None:
        chunks.append(chunk.pcm)

    response = await engine.speak(request(), "streamed", send)

    sizes = [len(samples_of(chunk)) for chunk in chunks]
    assert sizes[:4] == [FRAME_SAMPLES - LOOKAHEAD_SAMPLES, *(frames * FRAME_SAMPLES for frames in (2, 4, 8))]
    assert b"".join(map(b64decode, chunks)) == b64decode(response.audio)


async def test_a_caller_that_does_not_read_delays_no_other(engine: TalkerEngine) -> None:
    reads = asyncio.Event()

    async def send(chunk: SpokenChunk) -> None:
        await reads.wait()

    slow = asyncio.create_task(engine.speak(request(), "slow", send))

    assert len(samples_of(await pcm(engine, request(), "fast"))) > 0
    assert not slow.done()
    reads.set()
    assert len((await slow).audio) > 0


async def test_a_random_seed_is_reported(engine: TalkerEngine) -> None:
    response = await engine.speak(request(seed=None), "random")

    assert await pcm(engine, request(seed=response.seed)) == response.audio


async def test_a_speech_ends_at_the_limit(engine: TalkerEngine) -> None:
    response = await engine.speak(request(temperature=0), "limit")

    assert (response.finish_reason, response.seconds < MAX_TOKENS * FRAME_SAMPLES / SAMPLE_RATE) == ("length", True)


async def test_a_response_without_text_is_silent(engine: TalkerEngine) -> None:
    response = await engine.speak(request(""), "silent")

    assert (response.audio, response.seconds, response.finish_reason) == ("", 0, "stop")


async def test_a_response_that_was_cut_is_spoken_to_its_last_token(engine: TalkerEngine) -> None:
    complete = await engine.speak(request("yes"), "complete")

    cut = await engine.speak(request(token_ids=list(b"yes")), "cut")

    assert (cut.text, cut.audio) == (complete.text, complete.audio)


async def test_a_text_that_arrives_while_it_is_spoken_gives_the_same_speech(engine: TalkerEngine) -> None:
    from cornserve_executors.talker.spoken_text import SpokenPart

    texts = ["a small red boat", "yes", "", f"ends {chr(0)} twice"]
    all_tokens = [[*text.encode(), END_TOKEN] for text in texts]
    all_tokens[-1][5] = END_TOKEN  # An end token is spoken if another token follows.
    expected = [await engine.speak(request(token_ids=tokens), "whole") for tokens in all_tokens]
    chunk_sent = asyncio.Event()

    async def arrive(tokens: list[int]) -> AsyncIterator[SpokenPart]:
        for token in tokens[:3]:
            yield SpokenPart([token])
        await chunk_sent.wait()  # The speech has begun, and waits for the fourth token.
        for start in range(3, len(tokens), 2):
            yield SpokenPart(tokens[start : start + 2])

    async def send(chunk: SpokenChunk) -> None:
        chunk_sent.set()

    streamed = request(token_ids=None, tokens=TensorStream())
    found = await gather_all(
        engine.speak(streamed, str(number), send, arrive(tokens)) for number, tokens in enumerate(all_tokens)
    )

    assert found == expected


async def test_an_error_of_the_text_ends_the_speech(engine: TalkerEngine, stats: TalkerStats) -> None:
    from cornserve_executors.talker.spoken_text import SpokenPart

    async def fail() -> AsyncIterator[SpokenPart]:
        yield SpokenPart(b"abc")
        raise InvalidRequestError("the text is lost")

    with pytest.raises(InvalidRequestError, match="the text is lost"):
        await engine.speak(request(token_ids=None, tokens=TensorStream()), "lost", None, fail())

    await until(lambda: value(stats, "running_speeches") == 0)


async def test_a_speech_ends_at_the_maximum_duration(tiny_qwen3omni_talker: Path) -> None:
    stats = TalkerStats()
    task = TalkerTask(
        model_id=str(tiny_qwen3omni_talker), options=TalkerOptions(max_tokens=MAX_TOKENS, max_seconds=0.5)
    )
    async with running_engine(task, stats) as engine:
        speech = await engine.speak(request(), "long")

    assert speech.finish_reason == "length"
    assert 0.4 < speech.seconds <= 0.5
    assert value(stats, "audio_seconds_total") == speech.seconds
    assert value(stats, "real_time_factor_count") == 1


@pytest.mark.parametrize("fields", [{"tokens": TensorStream()}, {"token_ids": None}])
async def test_a_request_has_one_text(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="token_ids, tokens: set one of them"):
        request(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "alice"}, "voice: the model has no voice 'alice': use chelsie, ethan"),
        ({"token_ids": [5, 2_000_000_000, 1]}, "token_ids: 2000000000 is not a token of the model"),
        (
            {"token_ids": [5] * 70},
            r"the messages of the user and the response have \d+ and 70 tokens: this app allows at most 80",
        ),
        ({"user_messages": None, "token_ids": None, "states": TensorStream()}, "states: the talker of a Qwen3-Omni"),
        ({"user_messages": ["x" * 100]}, r"the messages of the user and the response have \d+ and"),
    ],
)
async def test_an_invalid_request_is_rejected(engine: TalkerEngine, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await engine.speak(request(**fields), "invalid")


async def test_a_cancelled_speech_stops_between_steps_and_frees_its_place(
    engine: TalkerEngine, stats: TalkerStats
) -> None:
    expected = await pcm(engine, request(seed=9))
    started = value(stats, "frames_total")
    cancelled = [asyncio.create_task(engine.speak(request(seed=n), "cancelled")) for n in range(4)]

    async def runs() -> bool:
        return value(stats, "frames_total") > started

    async def is_idle() -> bool:
        return value(stats, "running_speeches") == value(stats, "waiting_speeches") == 0

    await until(runs)
    following = asyncio.create_task(pcm(engine, request(seed=9), "following"))
    for work in cancelled:
        work.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)

    assert await following == expected
    await until(is_idle)
    assert value(stats, "frames_total") - started < 3 * MAX_TOKENS


async def test_a_model_without_a_talker_is_rejected() -> None:
    from cornserve_executors.talker.loader import load_talker_model

    with pytest.raises(ExecutorStartError, match=r"cannot speak: use a Qwen2\.5-Omni or a Qwen3-Omni with a talker"):
        load_talker_model(TalkerTask(model_id=str(tiny_model("qwen3omni"))), "cpu")


async def test_every_metric_is_documented(stats: TalkerStats) -> None:
    def described(metric: Metric) -> tuple[str, str, frozenset[str]]:
        labels = {label for sample in metric.samples for label in sample.labels}
        return metric.name, metric.type, frozenset(labels - {"le"})

    assert {described(metric) for metric in stats.metrics()} == documented_metrics("## Talkers")
