"""Runs a whole Omni model, one request after the other."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial

from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.media.audio_encoding import encode_file, to_int16
from cornserve_executors.omni.model import OmniAnswer, OmniModel
from cornserve_executors.omni.stats import OmniStats
from cornserve_tasklib.audio_format import AudioFormat
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.omni import OmniResponse, OmniTask
from cornserve_tasklib.seeds import seed_or_random
from cornserve_tasklib.speaking_chat import SpokenChatRequest
from cornserve_tasklib.talker import SAMPLE_RATE, SpokenChunk

SendChunk = Callable[[SpokenChunk], Awaitable[None]]


class OmniEngine:
    """Generates texts and speech. One thread runs the model: only one of its components works at a time."""

    def __init__(self, config: OmniTask, stats: OmniStats) -> None:
        """Loads the model. Blocks, and can run in any thread."""
        self._stats = stats
        self._device = DeviceThread()
        self._model = OmniModel(config, self._device.name)

    async def run(self) -> None:
        """Waits until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._device.wait_death()

    async def warm_up(self) -> None:
        """Generates a token, so that torch completes its lazy initialization."""
        await self.respond(SpokenChatRequest(chat=ChatRequest.ask("corn", max_tokens=1), modalities=["text"]))

    async def respond(self, request: SpokenChatRequest, send: SendChunk | None = None) -> OmniResponse:
        """Generates a response, and sends its whole speech to `send`.

        Raises `InvalidRequestError` for fields, voices and media that the model does not have.
        """
        self._model.check(request)
        seed = seed_or_random(request.seed)
        inputs = await asyncio.to_thread(self._model.inputs, request.chat)
        with self._stats.request():
            answer = await self._generate(partial(self._model.generate, request, inputs, seed))
        seconds = len(answer.samples) / SAMPLE_RATE
        self._stats.tokens += len(answer.token_ids)
        self._stats.audio_seconds += seconds
        pcm = to_int16(answer.samples).astype("<i2").tobytes()
        if send is not None and pcm:
            await send(SpokenChunk(pcm=b64encode(pcm).decode()))
        return OmniResponse(
            text=answer.text,
            token_ids=answer.token_ids,
            finish_reason="stop" if answer.is_complete else "length",
            usage=Usage(prompt_tokens=answer.prompt_tokens, completion_tokens=len(answer.token_ids)),
            audio=await asyncio.to_thread(_encode, pcm, request.response_format) if pcm else "",
            seconds=seconds,
            seed=seed,
        )

    def shutdown(self) -> None:
        """Blocks until the current work is done."""
        self._device.shutdown()

    async def _generate(self, generate: Callable[[threading.Event], OmniAnswer]) -> OmniAnswer:
        """Waits for the model. Cancelling the call stops the generation at its next token."""
        cancelled = threading.Event()
        try:
            return await self._device.run(partial(generate, cancelled))
        finally:
            cancelled.set()


def _encode(pcm: bytes, format: AudioFormat) -> str:
    return b64encode(encode_file(pcm, format, SAMPLE_RATE)).decode()
