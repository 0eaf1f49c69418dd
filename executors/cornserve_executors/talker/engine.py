"""Speaks texts: generates codes in batches, and decodes them chunk by chunk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self

import torch

from cornserve.concurrency import gather_all
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.device_thread import DeviceThread, run_on_device
from cornserve_executors.step_batcher import StepBatcher
from cornserve_executors.talker.loader import load_talker_model
from cornserve_executors.talker.pcm import SpeechAudio
from cornserve_executors.talker.prompt import ThinkerPrompt
from cornserve_executors.talker.speech_state import SpeechState
from cornserve_executors.talker.spoken_text import SpokenPart, SpokenText
from cornserve_executors.talker.stats import TalkerStats
from cornserve_executors.talker.talker_model import TalkerModel
from cornserve_tasklib.seeds import seed_or_random
from cornserve_tasklib.spoken_prompt import SpokenPrompt
from cornserve_tasklib.talker import (
    SAMPLE_RATE,
    SpokenChunk,
    SpokenCodesInfo,
    TalkerOptions,
    TalkerRequest,
    TalkerResponse,
    TalkerTask,
)

SendChunk = Callable[[SpokenChunk], Awaitable[None]]
PublishCodes = Callable[[torch.Tensor, SpokenCodesInfo], Awaitable[None]]


class TalkerEngine:
    """Speaks texts. One thread runs all work of the device: the steps of the talker and the vocoder take turns."""

    def __init__(self, model: TalkerModel, options: TalkerOptions, stats: TalkerStats, device: DeviceThread) -> None:
        """Allocates the talker's cache. The model is on the device."""
        self._model = model
        self._options = options
        self._stats = stats
        self._device = device
        self._step = model.step(options.max_batch_speeches, options.max_tokens, enforce_eager=options.enforce_eager)
        self._max_frames = max(1, int(options.max_seconds * SAMPLE_RATE / model.vocoder.frame_samples))
        self._batcher = StepBatcher(self._run_step, device.thread, options.max_batch_speeches, stats)

    @classmethod
    def load(cls, config: TalkerTask, stats: TalkerStats) -> Self:
        """Loads the model. Blocks, and can run in any thread."""
        device = DeviceThread()
        return cls(load_talker_model(config, device.name), config.options, stats, device)

    @property
    def captured_graphs(self) -> int:
        """The number of CUDA graphs that the talker and the vocoder have captured."""
        return self._step.captured_graphs + self._model.vocoder.captured_graphs

    async def run(self) -> None:
        """Speaks until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    async def warm_up(self) -> None:
        """Speaks a few frames, so that torch completes its lazy initialization. Captures the vocoder's CUDA graphs."""
        request = TalkerRequest(user_messages=["corn"], token_ids=[0])
        text = self._text(_once(SpokenPart([0], [torch.zeros(1)])))
        await text.read_first()
        await text.read_rest(lambda: None)

        def speak() -> None:
            speech = self._start(request, text, 0, ThinkerPrompt(SpokenPrompt(tokens=[]), torch.zeros(0, 1)))
            speech.max_frames = 2
            while not speech.is_done:
                self._step_and_decode([speech])
            self._model.vocoder.warm_up(self._model.voices[0], self._device.name)

        await self._device.run(speak)

    async def speak(
        self,
        request: TalkerRequest,
        request_id: str,
        send: SendChunk | None = None,
        parts: AsyncIterator[SpokenPart] | None = None,
        prompt: ThinkerPrompt | None = None,
    ) -> TalkerResponse:
        """Speaks a text, and sends its samples to `send` as they are decoded.

        Args:
            parts: yields the text. By default, it is `request.token_ids`.
            prompt: the thinker's prompt. By default, it is `request.user_messages`.

        Raises `InvalidRequestError` for an unknown voice or token, for inputs that the model does not read, and for a
        text that is too long.
        """
        audio = SpeechAudio()

        async def deliver(samples: torch.Tensor) -> None:
            chunk = audio.add(samples)
            if send is not None:
                await send(chunk)

        spoken = await self._speak(request, request_id, seed_or_random(request.seed), deliver, parts, prompt)
        return spoken.model_copy(update={"audio": await audio.encode(request.response_format)})

    async def speak_codes(
        self,
        request: TalkerRequest,
        request_id: str,
        publish: PublishCodes,
        parts: AsyncIterator[SpokenPart] | None = None,
        prompt: ThinkerPrompt | None = None,
    ) -> TalkerResponse:
        """Speaks a text without a vocoder, and publishes its codes as they are generated. See `speak`."""
        info = SpokenCodesInfo(voice=self._voice(request), seed=seed_or_random(request.seed))

        async def deliver(codes: torch.Tensor) -> None:
            await publish(codes, info)

        spoken = await self._speak(request, request_id, info.seed, deliver, parts, prompt)
        end = {"text": spoken.text, "finish_reason": spoken.finish_reason}
        await publish(torch.zeros(1), info.model_copy(update=end))
        return spoken

    async def _speak(
        self,
        request: TalkerRequest,
        request_id: str,
        seed: int,
        deliver: Callable[[torch.Tensor], Awaitable[None]],
        parts: AsyncIterator[SpokenPart] | None,
        prompt: ThinkerPrompt | None,
    ) -> TalkerResponse:
        """Delivers the chunks of a speech, and returns a response without audio. See `speak`."""
        self.check(request)
        text = self._text(_once(SpokenPart(request.token_ids or ())) if parts is None else parts)
        await text.read_first()
        if not text.tokens:
            return TalkerResponse(seed=seed)
        started = time.perf_counter()
        speech = await self._device.run(lambda: self._start(request, text, seed, prompt))
        arrived: asyncio.Queue[torch.Tensor | None] = asyncio.Queue()
        samples = 0

        def add_step() -> None:
            nonlocal samples
            for chunk in speech.take_chunks():
                if not samples:
                    self._stats.first_audio_seconds.observe(time.perf_counter() - started)
                samples += chunk.shape[-1] * self._model.vocoder.output_samples
                arrived.put_nowait(chunk)
            if speech.is_done:
                arrived.put_nowait(None)

        async def deliver_all() -> None:
            while (chunk := await arrived.get()) is not None:
                await deliver(chunk)

        work: list[Coroutine[Any, Any, None]] = [
            self._batcher.run_steps(speech, request_id, add_step),
            text.read_rest(self._batcher.wake),
            deliver_all(),
        ]
        await gather_all(work)
        self._stats.record_speech(time.perf_counter() - started, samples / SAMPLE_RATE)
        return TalkerResponse(
            text=self._model.decode(text.tokens),
            seconds=samples / SAMPLE_RATE,
            finish_reason="stop" if speech.has_ended else "length",
            seed=seed,
        )

    def check(self, request: TalkerRequest) -> None:
        """Raises `InvalidRequestError` for an unknown voice, and for inputs that the model does not read."""
        self._model.check(request)
        voices = self._model.voices
        if self._voice(request) not in voices:
            raise InvalidRequestError(f"voice: the model has no voice {request.voice!r}: use {', '.join(voices)}")

    def shutdown(self) -> None:
        """Blocks until the current work of the device is done."""
        self._device.shutdown()

    def _voice(self, request: TalkerRequest) -> str:
        return self._model.voices[0] if request.voice is None else request.voice.lower()

    def _text(self, parts: AsyncIterator[SpokenPart]) -> SpokenText:
        return SpokenText(parts, self._model.end_token, len(self._model.embeddings))

    def _start(self, request: TalkerRequest, text: SpokenText, seed: int, prompt: ThinkerPrompt | None) -> SpeechState:
        vocoder = self._model.vocoder
        voice = self._voice(request)
        talker_prompt = self._model.prompt(request, text, prompt, voice)
        tokens = len(talker_prompt.rows)
        max_frames = self._options.max_tokens - tokens
        if max_frames < len(text.tokens):
            raise InvalidRequestError(
                f"{self._model.prompt_name} and the response have {tokens} and {len(text.tokens)} tokens: this app "
                f"allows at most {self._options.max_tokens} together (max_tokens)"
            )
        return SpeechState(
            prompt=talker_prompt,
            text=text,
            seed=seed,
            temperature=request.temperature,
            max_frames=min(max_frames, self._max_frames),
            vocoder=vocoder.start(voice, seed),
            chunk_frames=vocoder.chunk_frames(0),
        )

    def _run_step(self, speeches: Sequence[SpeechState]) -> None:
        run_on_device(lambda: self._step_and_decode(speeches))

    def _step_and_decode(self, speeches: Sequence[SpeechState]) -> None:
        for speech in speeches:
            if speech.failure is not None:
                raise speech.failure
        self._step.run(speeches)
        for speech in speeches:
            self._decode(speech)

    def _decode(self, speech: SpeechState) -> None:
        """Decodes the chunks whose frames exist. A speech cannot be decoded again after a failure."""
        vocoder = self._model.vocoder
        try:
            while frames := speech.next_chunk:
                codes = torch.tensor(frames, device=self._model.embeddings.device).T
                speech.add_samples(vocoder.decode(speech.vocoder, codes))
                speech.decoded += len(frames)
                speech.chunk_frames = vocoder.chunk_frames(speech.decoded)
            if speech.is_done and not speech.is_decoded:
                speech.add_samples(vocoder.finish(speech.vocoder))
                speech.is_decoded = True
        except Exception as error:
            speech.failure = error
            raise


async def _once(part: SpokenPart) -> AsyncIterator[SpokenPart]:
    yield part
