"""Speaks texts, one sentence after the other, and encodes the audio."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.media.audio_encoding import AudioEncoder
from cornserve_executors.text_to_speech.model import SpeechModel
from cornserve_executors.text_to_speech.sentences import split_sentences
from cornserve_executors.text_to_speech.stats import TextToSpeechStats
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.seeds import seed_or_random
from cornserve_tasklib.text_to_speech import SpeechChunk, SpeechRequest, SpeechResponse, TextToSpeechTask

Result = TypeVar("Result")

SendChunk = Callable[[SpeechChunk], Awaitable[None]]


class TextToSpeechEngine:
    """Speaks texts. One thread runs the model: the sentences of all requests take turns."""

    def __init__(self, config: TextToSpeechTask, stats: TextToSpeechStats) -> None:
        """Loads the model. Blocks, and can run in any thread."""
        self._options = config.options
        self._stats = stats
        self._device = DeviceThread()
        self.model = SpeechModel(config, self._device.name)

    async def run(self) -> None:
        """Waits until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._device.wait_death()

    async def warm_up(self) -> None:
        """Speaks a sentence, so that torch completes its lazy initialization."""
        request = SpeechRequest(input="corn")
        speaker = self.model.find_speaker(request.voice)
        await self._device.run(partial(self.model.speak, [1] * 7, speaker, request, 0))

    async def speak(self, request: SpeechRequest, send: SendChunk, *, sent_chunks: int = 0) -> SpeechResponse:
        """Speaks a text, and sends each sentence as soon as it is encoded.

        Args:
            send: receives the parts of the audio file.
            sent_chunks: the number of chunks that an earlier attempt has sent, which are generated again and not sent.

        Raises:
            InvalidRequestError: the model does not have the voice, or knows no character of the text, or the text is
                longer than the options allow.
        """
        started = time.perf_counter()
        speaker = self.model.find_speaker(request.voice)
        self._check_length(request.input)
        with self._stats.request(len(request.input)):
            sentences = await asyncio.to_thread(lambda: self.model.encode(split_sentences(request.input)))
            chunks = _ChunkSender(request, self.model.sample_rate, send, sent_chunks)
            first_seed = seed_or_random(request.seed)
            samples = 0
            for number, tokens in enumerate(sentences):
                spoken = await self._speak_sentence(tokens, speaker, request, first_seed + number)
                samples += spoken.size
                await chunks.send(spoken)
                if number == 0:
                    self._stats.first_audio_seconds.observe(time.perf_counter() - started)
            await chunks.finish()
        usage = Usage(prompt_tokens=sum(map(len, sentences)), completion_tokens=samples // self.model.frame_samples)
        return SpeechResponse(seconds=samples / self.model.sample_rate, usage=usage)

    def shutdown(self) -> None:
        """Blocks until the current sentence is done."""
        self._device.shutdown()

    def _check_length(self, text: str) -> None:
        maximum = self._options.max_characters
        if len(text) > maximum:
            raise InvalidRequestError(
                f"input: has {len(text)} characters: this app allows at most {maximum} (max_characters)"
            )

    async def _speak_sentence(
        self, tokens: list[int], speaker: int | None, request: SpeechRequest, seed: int
    ) -> npt.NDArray[np.float32]:
        work = partial(_timed, partial(self.model.speak, tokens, speaker, request, seed))
        seconds, samples = await self._device.run(work)
        self._stats.record_sentence(seconds, samples.size / self.model.sample_rate)
        return samples


class _ChunkSender:
    """Encodes the speech of one request in other threads, and sends it."""

    def __init__(self, request: SpeechRequest, sample_rate: int, send: SendChunk, sent_chunks: int) -> None:
        self._encoder = AudioEncoder(request.response_format, sample_rate)
        self._sample_rate = sample_rate
        self._send = send
        self._repeated = sent_chunks

    async def send(self, samples: npt.NDArray[np.float32]) -> None:
        """Sends a chunk, also if the encoder keeps all samples back."""
        content = await asyncio.to_thread(_encoded, partial(self._encoder.encode, samples))
        await self._send_content(content, samples.size / self._sample_rate)

    async def finish(self) -> None:
        if content := await asyncio.to_thread(_encoded, self._encoder.finish):
            await self._send_content(content, 0)

    async def _send_content(self, content: str, seconds: float) -> None:
        if self._repeated > 0:
            self._repeated -= 1
            return
        await self._send(SpeechChunk(audio=content, seconds=seconds, sample_rate=self._sample_rate))


def _encoded(work: Callable[[], bytes]) -> str:
    return b64encode(work()).decode()


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result
