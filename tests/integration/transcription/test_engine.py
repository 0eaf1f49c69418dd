"""Whisper: transcripts equal those of vLLM's own server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.vllm import settings
from cornserve_tasklib import (
    Audio,
    EngineOptions,
    TranscriptionChunk,
    TranscriptionRequest,
    TranscriptionResponse,
    TranscriptionTask,
)
from tests.audio import as_audio, sound, spoiled_audio
from tests.integration.transcription.attention_reference import (
    reference_attention,
    visible_ascii,
)
from tests.integration.transcription.vllm_reference import TOKENS, SpeechServer, speech_server, vllm_response

if TYPE_CHECKING:
    from cornserve_executors.transcription.engine import TranscriptionEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SPEECH = {
    "short": as_audio(sound(0, 1.3)),
    "stereo MP3": as_audio(sound(1, 2, 44_100, 2), 44_100, "MP3"),
    "Opus": as_audio(sound(2, 1, 48_000), 48_000, "OGG"),
    "Opus in WebM": as_audio(sound(2, 1, 48_000), 48_000, "WEBM"),
    "AAC in M4A": as_audio(sound(4, 1, 44_100), 44_100, "M4A"),
    "three clips": as_audio(sound(3, 12, 8_000), 8_000, "FLAC"),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "detected language": {},
    "Japanese": {"language": "ja"},
    "prompt": {"language": "de", "prompt": "Guten Tag, Cornserve!"},
    "translation": {"language": "fr", "task": "translate"},
    "seed": {"language": "en", "temperature": 0.7, "top_p": 0.9, "seed": 3},
    "penalties": {"language": "en", "repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.1},
    "segments": {"language": "en", "segments": True, "temperature": 1.0, "seed": 1},
    "segments in Chinese": {"language": "zh", "segments": True},
}

_ids = count()


@pytest.fixture(scope="module")
def engine(tiny_whisper: Path, fork_variables: dict[str, str]) -> Iterator[TranscriptionEngine]:
    settings.prepare_environment()
    from cornserve_executors.transcription.engine import TranscriptionEngine

    options = EngineOptions(kv_cache_memory_bytes=64 << 20)
    with patch.dict(os.environ, fork_variables):
        engine = TranscriptionEngine(TranscriptionTask(model_id=str(tiny_whisper), options=options))
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def vllm_server(engine: TranscriptionEngine) -> SpeechServer:
    return speech_server(engine)


def request(audio: Audio, **options: Any) -> TranscriptionRequest:
    return TranscriptionRequest(audio=audio, max_completion_tokens=TOKENS, **options)


async def transcribe(engine: TranscriptionEngine, audio: Audio, **options: Any) -> TranscriptionResponse:
    return await engine.transcribe(request(audio, **options), str(next(_ids)))


async def stream(engine: TranscriptionEngine, audio: Audio, **options: Any) -> list[TranscriptionChunk]:
    chunks: list[TranscriptionChunk] = []

    async def send(chunk: TranscriptionChunk) -> None:
        chunks.append(chunk)

    response = await engine.transcribe(request(audio, **options), str(next(_ids)), send)
    assert "".join(chunk.text for chunk in chunks) == response.text
    return chunks


FAST = {"translation", "segments in Chinese"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST)) for name in OPTIONS]
)
async def test_transcripts_equal_those_of_vllm_concurrently(
    engine: TranscriptionEngine, vllm_server: SpeechServer, name: str
) -> None:
    options = OPTIONS[name]
    expected = [await vllm_response(vllm_server, audio, options) for audio in SPEECH.values()]

    found = await asyncio.gather(*(transcribe(engine, audio, **options) for audio in SPEECH.values()))

    assert [response.text for response in found] == [response.text for response in expected]
    assert len({response.text for response in found}) > 1
    if options.get("segments"):
        verbose = [response.model_dump() for response in expected]
        assert [response.seconds for response in found] == [response["duration"] for response in verbose]
        assert [response.language for response in found] == [response["language"] for response in verbose]
        for response, other in zip(found, verbose, strict=True):
            expected_logprobs = [segment.pop("avg_logprob") for segment in other["segments"]]
            segments = [segment.model_dump() | {"no_speech_prob": None} for segment in response.segments]
            assert [segment.pop("avg_logprob") for segment in segments] == pytest.approx(expected_logprobs, abs=1e-4)
            assert segments == other["segments"]
        assert any(response.segments for response in found)


async def test_the_words_of_all_clips_have_times_within_their_segments(engine: TranscriptionEngine) -> None:
    audio = SPEECH["three clips"]
    plain = await transcribe(engine, audio, language="en", segments=True, temperature=1.0, seed=1)
    response = await transcribe(engine, audio, language="en", segments=True, words=True, temperature=1.0, seed=1)

    assert (response.text, response.segments, plain.words) == (plain.text, plain.segments, [])
    times = [time for word in response.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[-1] <= response.seconds
    tokenizer: Any = engine._vllm.renderer.tokenizer
    tokens = [token for segment in response.segments for token in segment.tokens if token < tokenizer.eos_token_id]
    assert visible_ascii([word.word for word in response.words]) == visible_ascii([tokenizer.decode(tokens)]) != ""


async def test_the_attention_to_the_audio_is_that_of_transformers(
    engine: TranscriptionEngine, tiny_whisper: Path
) -> None:
    from cornserve_executors.transcription.clip_transcript import ClipTranscript

    tokens, frames = [256, 257, *b"Maize is a tall grass.", 256], 60
    prompt: Any = await engine._prompts.clip(sound(0, 1.3)[:, 0].copy(), request(SPEECH["short"]), "en")
    transcript = ClipTranscript(prompt, 0, 1.3, lambda text, finished: text, None)
    features, heads = transcript.features, [(1, 0), (1, 1)]

    (found,) = await engine._vllm.collective_rpc(
        "attend_to_audio", args=(features.tobytes(), len(features), tokens, frames, heads)
    )

    attention = np.frombuffer(found, np.float32).reshape(len(tokens), frames) / len(heads)
    expected = reference_attention(tiny_whisper, features, tokens, frames)
    np.testing.assert_allclose(attention, expected, atol=1e-3)
    assert expected.std() > 0.1


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.slow)])
async def test_audio_that_is_not_finite_changes_no_transcript_of_other_requests(
    engine: TranscriptionEngine, count: int
) -> None:
    expected = (await transcribe(engine, SPEECH["short"], language="en")).text

    async def refused(number: int) -> None:
        with pytest.raises(InvalidRequestError, match="the audio has a sample that is not within"):
            await transcribe(engine, spoiled_audio(number), language="en")

    async def transcripts() -> set[str]:
        return {(await transcribe(engine, SPEECH["short"], language="en")).text for _ in range(count // 4)}

    *found, _ = await asyncio.gather(*(transcripts() for _ in range(4)), asyncio.gather(*map(refused, range(count))))

    assert [*found, await transcripts()] == [{expected}] * 5


@pytest.mark.parametrize(
    "name", ["detected language", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Japanese", "translation"))]
)
async def test_streams_equal_those_of_vllm(engine: TranscriptionEngine, vllm_server: SpeechServer, name: str) -> None:
    audio, options = SPEECH["three clips"], OPTIONS[name]
    events = await vllm_response(vllm_server, audio, options, stream=True, stream_include_usage=True)
    data = [event.removeprefix("data: ") async for event in events]
    choices = [choice for event in data[:-1] for choice in json.loads(event)["choices"]]

    chunks = await stream(engine, audio, **options)

    # The number of chunks depends on the time at which they are read.
    assert "".join(chunk.text for chunk in chunks) == "".join(choice["delta"]["content"] for choice in choices)
    assert len(chunks) >= 3  # One for each clip. A slow reader receives several outputs of vLLM as one chunk.
    reasons = [choice["finish_reason"] for choice in choices if "finish_reason" in choice]
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason is not None] == reasons
    assert len(reasons) == 3


async def test_the_usage_counts_audio_prompts_and_generated_tokens(engine: TranscriptionEngine) -> None:
    response = await transcribe(engine, SPEECH["three clips"], language="en")

    # A position for each 10 ms of audio, and four tokens at the start of each clip.
    assert (response.usage.prompt_tokens, response.seconds) == (1200 + 3 * 4, 12)
    assert 0 < response.usage.completion_tokens <= 3 * TOKENS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "xx"}, "language: the model does not know 'xx'"),
        ({"language": "elvish"}, "language: the model does not know 'elvish'"),
        ({"task": "translate", "to_language": "german"}, "to_language: the model does not translate to 'de'"),
        ({"language": "en", "prompt": "too long " * 100}, "448"),
    ],
)
async def test_an_invalid_request_is_rejected(
    engine: TranscriptionEngine, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await transcribe(engine, SPEECH["short"], **options)


async def test_a_language_may_be_given_by_its_name(engine: TranscriptionEngine) -> None:
    by_name = await transcribe(engine, SPEECH["short"], language="german")

    assert by_name.language == "de"
    assert by_name.text == (await transcribe(engine, SPEECH["short"], language="de")).text


async def test_a_truncated_file_is_rejected(engine: TranscriptionEngine) -> None:
    audio = SPEECH["three clips"]
    assert audio.data is not None
    half = audio.model_copy(update={"data": type(audio.data)(audio.data.data[: len(audio.data.data) // 2])})

    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        await transcribe(engine, half)


async def test_a_cancelled_request_leaves_no_work(engine: TranscriptionEngine) -> None:
    started = asyncio.Event()

    async def send(chunk: TranscriptionChunk) -> None:
        started.set()

    work = asyncio.create_task(engine.transcribe(request(SPEECH["three clips"], language="en"), "cancelled", send))
    await started.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert not engine._vllm.output_processor.has_unfinished_requests()
