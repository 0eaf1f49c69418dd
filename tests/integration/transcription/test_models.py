"""Models other than Whisper that transcribe: transcripts equal those of vLLM's own server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

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
from tests.audio import as_audio, sound
from tests.integration.transcription.vllm_reference import TOKENS, SpeechServer, speech_server, vllm_response
from tests.models.tiny_families import tiny_model, whole_model

if TYPE_CHECKING:
    from cornserve_executors.transcription.engine import TranscriptionEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    pytest.mark.families,
    pytest.mark.filterwarnings("ignore:`rope_config_validation` is deprecated:FutureWarning"),  # raised by vLLM
]

SPEECH = {
    "short": as_audio(sound(0, 1.3)),
    "stereo MP3": as_audio(sound(1, 2, 44_100, 2), 44_100, "MP3"),
    "Opus": as_audio(sound(2, 1, 48_000), 48_000, "OGG"),
    "two clips": as_audio(sound(3, 34, 8_000), 8_000, "FLAC"),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "no language": {},
    "language": {"language": "de"},
    "translation": {"task": "translate"},
    "seed": {"language": "en", "temperature": 0.7, "top_p": 0.9, "seed": 3},
}

_ids = count()


@pytest.fixture(scope="module", params=["glm_asr", "granite_speech", "qwen3_asr", "qwen3omni"])
def engine(request: pytest.FixtureRequest, fork_variables: dict[str, str]) -> Iterator[TranscriptionEngine]:
    settings.prepare_environment()
    from cornserve_executors.transcription.engine import TranscriptionEngine

    model = tiny_model("qwen3omni") if request.param == "qwen3omni" else whole_model("speech", request.param)
    options = EngineOptions(max_model_len=3968, kv_cache_memory_bytes=64 << 20)
    with patch.dict(os.environ, fork_variables):
        engine = TranscriptionEngine(TranscriptionTask(model_id=str(model), options=options))
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def vllm_server(engine: TranscriptionEngine) -> SpeechServer:
    return speech_server(engine)


async def transcribe(engine: TranscriptionEngine, audio: Audio, **options: Any) -> TranscriptionResponse:
    request = TranscriptionRequest(audio=audio, max_completion_tokens=TOKENS, **options)
    return await engine.transcribe(request, str(next(_ids)))


@pytest.mark.parametrize("name", OPTIONS)
async def test_transcripts_equal_those_of_vllm_concurrently(
    engine: TranscriptionEngine, vllm_server: SpeechServer, name: str
) -> None:
    options = OPTIONS[name]
    expected = [await vllm_response(vllm_server, audio, options) for audio in SPEECH.values()]

    found = await asyncio.gather(*(transcribe(engine, audio, **options) for audio in [*SPEECH.values()] * 2))

    assert [response.text for response in found] == [response.text for response in expected] * 2
    assert len({response.text for response in found}) == len(SPEECH)


async def test_a_stream_has_the_text_of_the_whole_transcript(engine: TranscriptionEngine) -> None:
    chunks: list[TranscriptionChunk] = []

    async def send(chunk: TranscriptionChunk) -> None:
        chunks.append(chunk)

    audio = SPEECH["two clips"]
    request = TranscriptionRequest(audio=audio, max_completion_tokens=TOKENS, language="en")
    streamed = await engine.transcribe(request, str(next(_ids)), send)

    assert "".join(chunk.text for chunk in chunks) == streamed.text
    assert streamed.text == (await transcribe(engine, audio, language="en")).text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "xx"}, "language: the model does not know 'xx'"),
        ({"segments": True}, "the model writes no timestamps"),
    ],
)
async def test_an_invalid_request_is_rejected(
    engine: TranscriptionEngine, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await transcribe(engine, SPEECH["short"], **options)
