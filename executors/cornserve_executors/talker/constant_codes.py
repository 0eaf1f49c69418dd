"""Publishes codes of zero at once in the place of a talker, to measure a vocoder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import torch

from cornserve_executors.talker.engine import PublishCodes
from cornserve_executors.talker.loader import load_codes_format
from cornserve_executors.talker.prompt import ThinkerPrompt
from cornserve_executors.talker.spoken_text import SpokenPart
from cornserve_executors.talker.vocoder import MAX_CHUNK_FRAMES
from cornserve_tasklib.seeds import seed_or_random
from cornserve_tasklib.talker import SAMPLE_RATE, SpokenCodesInfo, TalkerRequest, TalkerResponse, TalkerTask

TOKEN_SECONDS = 0.3
"""The assumed duration of a spoken token."""


class ConstantCodesEngine:
    """Has the interface of a `TalkerEngine` without a vocoder. It has no weights."""

    def __init__(self, config: TalkerTask) -> None:
        self._shape, self._voice = load_codes_format(config)
        self._max_seconds = config.options.max_seconds

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def warm_up(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def check(self, request: TalkerRequest) -> None:
        pass

    async def speak_codes(
        self,
        request: TalkerRequest,
        request_id: str,
        publish: PublishCodes,
        parts: AsyncIterator[SpokenPart] | None = None,
        prompt: ThinkerPrompt | None = None,
    ) -> TalkerResponse:
        """Publishes the codes of the text's assumed duration. See `TalkerEngine.speak_codes`."""
        tokens = len(request.token_ids or ())
        if parts is not None:
            tokens = sum([len(part.tokens) async for part in parts])
        seconds = min(tokens * TOKEN_SECONDS, self._max_seconds)
        frames = int(seconds * SAMPLE_RATE / self._shape.samples)
        info = SpokenCodesInfo(voice=self._voice, seed=seed_or_random(request.seed))
        for start in range(0, frames, MAX_CHUNK_FRAMES):
            shape = self._shape.groups, min(MAX_CHUNK_FRAMES, frames - start)
            await publish(torch.zeros(shape, dtype=torch.int64), info)
        await publish(torch.zeros(1), info.model_copy(update={"text": ""}))
        return TalkerResponse(seed=info.seed, seconds=seconds)
