"""Speaks texts: generates codes in batches, and decodes them chunk by chunk."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from cornserve.concurrency import gather_all
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.device_thread import run_on_device
from cornserve_executors.media.audio_encoding import encode_file
from cornserve_executors.step_batcher import StepBatcher
from cornserve_executors.talker.loader import load_talker
from cornserve_executors.talker.prompt import MediaPrompt, TalkerPrompt, TalkerPrompts
from cornserve_executors.talker.speech_state import MAX_CHUNK_FRAMES, SpeechState
from cornserve_executors.talker.spoken_text import SpokenText
from cornserve_executors.talker.stats import TalkerStats
from cornserve_executors.talker.step import TalkerStep
from cornserve_executors.talker.vocoder import Vocoder
from cornserve_tasklib.seeds import seed_or_random
from cornserve_tasklib.talker import SAMPLE_RATE, SpokenChunk, TalkerRequest, TalkerResponse, TalkerTask

Result = TypeVar("Result")
SendChunk = Callable[[SpokenChunk], Awaitable[None]]


class TalkerEngine:
    """Speaks texts. One thread runs all work of the device: the steps of the talker and the vocoder take turns."""

    def __init__(self, config: TalkerTask, stats: TalkerStats) -> None:
        """Loads the model. Blocks, and can run in any thread."""
        self._options = config.options
        self._stats = stats
        model = load_talker(config, "cuda" if torch.cuda.is_available() else "cpu")
        self._voices: dict[str, int] = model.config.talker_config.speaker_id
        self._device = model.embeddings.device
        self._vocabulary = len(model.embeddings)
        self._end_token: int = model.config.im_end_token_id
        with torch.inference_mode():
            self._prompts = TalkerPrompts(model)
        self._step = TalkerStep(model, self._prompts, self._options.max_batch_speeches, self._options.max_tokens)
        self._vocoder = Vocoder(model.vocoder)
        self._device_thread = ThreadPoolExecutor(1, "device")
        self._batcher = StepBatcher(self._run_step, self._device_thread, self._options.max_batch_speeches, stats)

    @property
    def voices(self) -> Sequence[str]:
        """The names of the model's voices, in order."""
        return sorted(self._voices)

    async def run(self) -> None:
        """Speaks until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    async def warm_up(self) -> None:
        """Speaks a few frames, so that torch completes its lazy initialization."""
        request = TalkerRequest(user_messages=["corn"], token_ids=[0])
        text = self._text(_once([0]))
        await text.read_first()

        def speak() -> None:
            speech = self._start(request, text, 0, None)
            for _ in range(2):
                if not speech.is_done:
                    self._step_and_decode([speech])

        await self._run(speak)

    async def speak(
        self,
        request: TalkerRequest,
        request_id: str,
        send: SendChunk | None = None,
        tokens: AsyncIterator[Sequence[int]] | None = None,
        media: MediaPrompt | None = None,
    ) -> TalkerResponse:
        """Speaks a text, and sends its samples to `send` as they are decoded.

        Args:
            tokens: yields the tokens of the text, part by part. By default, they are `request.token_ids`.
            media: the prompt, if it contains media. By default, it is `request.user_messages`.

        Raises `InvalidRequestError` for an unknown voice or token, and for a text that is too long.
        """
        seed = seed_or_random(request.seed)
        self._check_voice(request)
        text = self._text(_once(request.token_ids or ()) if tokens is None else tokens)
        await text.read_first()
        if not text.tokens:
            return TalkerResponse(audio=await _encode(b"", request), seed=seed)
        started = time.perf_counter()
        speech = await self._run(lambda: self._start(request, text, seed, media))
        samples: list[bytes] = []
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()

        def add_step() -> None:
            for chunk in speech.take_chunks():
                if not samples:
                    self._stats.record_first_audio(time.perf_counter() - started)
                samples.append(_to_pcm(chunk))
                arrived.put_nowait(samples[-1])
            if speech.is_done:
                arrived.put_nowait(None)

        async def send_all(send: SendChunk) -> None:
            while (pcm := await arrived.get()) is not None:
                await send(SpokenChunk(pcm=b64encode(pcm).decode()))

        work: list[Coroutine[Any, Any, None]] = [
            self._batcher.run_steps(speech, request_id, add_step),
            text.read_rest(self._batcher.wake),
        ]
        await gather_all(work if send is None else [*work, send_all(send)])
        self._stats.record_speech(time.perf_counter() - started)
        pcm = b"".join(samples)
        return TalkerResponse(
            audio=await _encode(pcm, request),
            text=self._prompts.decode(text.tokens),
            seconds=len(pcm) / 2 / SAMPLE_RATE,
            finish_reason="stop" if speech.has_ended else "length",
            seed=seed,
        )

    def shutdown(self) -> None:
        """Blocks until the current work of the device is done."""
        self._device_thread.shutdown(cancel_futures=True)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._device_thread, run_on_device, work)

    def _check_voice(self, request: TalkerRequest) -> None:
        if request.voice is not None and request.voice.lower() not in self._voices:
            raise InvalidRequestError(f"voice: the model has no voice {request.voice!r}: use {', '.join(self.voices)}")

    def _text(self, parts: AsyncIterator[Sequence[int]]) -> SpokenText:
        return SpokenText(parts, self._end_token, self._vocabulary)

    def _start(self, request: TalkerRequest, text: SpokenText, seed: int, media: MediaPrompt | None) -> SpeechState:
        prompt = self._prompt(request, text.tokens[0], media)
        tokens = len(prompt.rows)
        max_frames = self._options.max_tokens - tokens
        if max_frames < len(text.tokens):
            raise InvalidRequestError(
                f"the messages of the user and the response have {tokens} and {len(text.tokens)} tokens: this app "
                f"allows at most {self._options.max_tokens} together (max_tokens)"
            )
        return SpeechState(
            prompt=prompt,
            text=text,
            seed=seed,
            temperature=request.temperature,
            max_frames=max_frames,
            vocoder=self._vocoder.start(),
        )

    def _prompt(self, request: TalkerRequest, first: int, media: MediaPrompt | None) -> TalkerPrompt:
        voice = self._voices[self.voices[0] if request.voice is None else request.voice.lower()]
        if media is not None:
            return self._prompts.of_media(media, first, voice)
        return self._prompts.of_texts(request.user_messages or (), first, voice)

    def _run_step(self, speeches: Sequence[SpeechState]) -> None:
        run_on_device(lambda: self._step_and_decode(speeches))

    def _step_and_decode(self, speeches: Sequence[SpeechState]) -> None:
        for speech in speeches:
            if speech.failure is not None:
                raise speech.failure
        self._step.run(speeches)
        for speech in speeches:
            while frames := speech.next_chunk:
                codes = torch.tensor(frames, device=self._device).T
                speech.chunks.append(self._decode(speech, codes))
                speech.decoded += len(frames)
                speech.chunk_frames = min(2 * speech.chunk_frames, MAX_CHUNK_FRAMES)

    def _decode(self, speech: SpeechState, codes: torch.Tensor) -> torch.Tensor:
        """Returns the samples of the next frames. A speech cannot be decoded again after a failure."""
        try:
            return self._vocoder.decode(speech.vocoder, codes).cpu()
        except Exception as error:
            speech.failure = error
            raise


async def _once(tokens: Sequence[int]) -> AsyncIterator[Sequence[int]]:
    yield tokens


async def _encode(pcm: bytes, request: TalkerRequest) -> str:
    return b64encode(await asyncio.to_thread(encode_file, pcm, request.response_format, SAMPLE_RATE)).decode()


def _to_pcm(samples: torch.Tensor) -> bytes:
    pcm: bytes = (samples * 32767).round().to(torch.int16).numpy().astype("<i2").tobytes()
    return pcm
