"""Decodes the codes of speeches that talkers in other executors generate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Self

import torch

from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.talker.decoded_speech import CodesPart, DecodedSpeech
from cornserve_executors.talker.loader import load_codes_format, load_vocoder
from cornserve_executors.talker.pcm import SpeechAudio
from cornserve_executors.talker.vocoder import Vocoder
from cornserve_executors.talker.vocoder_stats import VocoderStats
from cornserve_tasklib.audio_format import AudioFormat
from cornserve_tasklib.talker import SpokenChunk, SpokenCodesInfo, TalkerResponse, VocoderTask

SendChunk = Callable[[SpokenChunk], Awaitable[None]]


class VocoderEngine:
    """Decodes speeches. One thread runs all work of the device: the chunks of all speeches take turns."""

    def __init__(self, vocoder: Vocoder[Any], voice: str, stats: VocoderStats, device: DeviceThread) -> None:
        """Keeps a vocoder, which is on the device.

        Args:
            voice: the voice of the warm-up.
        """
        self._vocoder = vocoder
        self._voice = voice
        self._stats = stats
        self._device = device

    @classmethod
    def load(cls, config: VocoderTask, stats: VocoderStats) -> Self:
        """Loads the vocoder. Blocks, and can run in any thread."""
        device = DeviceThread()
        vocoder = load_vocoder(config, device.name)
        _, voice = load_codes_format(config)
        return cls(vocoder, voice, stats, device)

    async def run(self) -> None:
        """Waits until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._device.wait_death()

    async def warm_up(self) -> None:
        """Decodes a few frames, so that torch completes its lazy initialization. Captures the CUDA graphs."""
        await self._device.run(lambda: self._vocoder.warm_up(self._voice, self._device.name))

    async def speak(
        self, parts: AsyncIterator[CodesPart], response_format: AudioFormat, send: SendChunk | None = None
    ) -> TalkerResponse:
        """Decodes a speech, and sends its samples to `send` as they are decoded."""
        audio = SpeechAudio()
        with self._stats.speech():
            info = await self._decode_all(parts, audio, send)
            encoded = await audio.encode(response_format)
        self._stats.audio_seconds += audio.seconds
        return TalkerResponse(
            audio=encoded,
            text=info.text or "",
            seconds=audio.seconds,
            finish_reason=info.finish_reason,
            seed=info.seed,
        )

    async def _decode_all(
        self, parts: AsyncIterator[CodesPart], audio: SpeechAudio, send: SendChunk | None
    ) -> SpokenCodesInfo:
        """Adds all samples of a speech to `audio`, and returns the description of its last tensor."""
        speech: DecodedSpeech | None = None
        async for part in parts:
            if speech is None:
                speech = DecodedSpeech(self._vocoder, part.info, self._device.name)
            speech.add(part)
            while speech.is_ready:
                samples = await self._device.run(partial(self._decode, speech))
                if not len(samples):
                    continue
                chunk = audio.add(samples)
                if send is not None:
                    await send(chunk)
        if speech is None or not speech.is_decoded:
            raise RuntimeError("the talker has not sent the end of its speech")
        return speech.info

    def _decode(self, speech: DecodedSpeech) -> torch.Tensor:
        with self._stats.decode_seconds.time():
            return speech.decode()

    def shutdown(self) -> None:
        """Blocks until the current work is done."""
        self._device.shutdown()
