"""Collects the transcript of one clip."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from vllm import RequestOutput

from cornserve_executors.transcription.segments import SegmentBuilder
from cornserve_tasklib.chat_response import FinishReason
from cornserve_tasklib.transcription import TranscriptionChunk, TranscriptionSegment

_FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}

CleanText = Callable[[str, bool], str]
"""Removes the model's markup from a text, or from its next part. The second argument is true for the last part."""


class ClipTranscript:
    """The transcript of one clip, which grows with each output of vLLM.

    Args:
        prompt: the engine's input.
        start: the start of the clip, in seconds.
        seconds: the duration of the clip.
        clean: applies to texts without segments.
        segments: builds the segments, if the request asks for them. vLLM must then return a single output.
    """

    def __init__(
        self, prompt: Any, start: float, seconds: float, clean: CleanText, segments: SegmentBuilder | None
    ) -> None:
        self.prompt = prompt
        self.start = start
        self.seconds = seconds
        self.segments: list[TranscriptionSegment] = []
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._texts: list[str] = []
        self._clean = clean
        self._builder = segments
        self._chunks: asyncio.Queue[TranscriptionChunk] = asyncio.Queue()

    @property
    def texts(self) -> list[str]:
        """The texts of the segments, or the whole text."""
        return self._texts if self._builder is not None else ["".join(self._texts)]

    @property
    def features(self) -> npt.NDArray[np.float32]:
        """The audio as the input of Whisper, of the shape [bins, frames]."""
        (audio,) = self.prompt["decoder_prompt"]["mm_kwargs"]["audio"]
        features: npt.NDArray[np.float32] = audio["input_features"].data.float().numpy()
        return features

    def add_output(self, output: RequestOutput) -> None:
        (completion,) = output.outputs
        self.prompt_tokens = len(output.prompt_token_ids or ())
        self.completion_tokens += len(completion.token_ids)
        if self._builder is None:
            texts = [self._clean(completion.text, completion.finish_reason is not None)]
        else:
            new = self._builder.build(tuple(completion.token_ids), completion.logprobs or (), self.start)
            self.segments += new
            texts = [segment.text for segment in new]
        self._texts += texts
        reason = None if completion.finish_reason is None else _FINISH_REASONS.get(completion.finish_reason)
        if output.finished and reason is None:
            raise RuntimeError(f"unexpected finish reason {completion.finish_reason!r} from vLLM")
        self._chunks.put_nowait(TranscriptionChunk(text="".join(texts), finish_reason=reason))

    async def chunks(self, separator: str) -> AsyncIterator[TranscriptionChunk]:
        """Yields the chunks with text as they arrive, and the last one. `separator` precedes the text."""
        while True:
            chunk = await self._chunks.get()
            if chunk.text:
                chunk.text, separator = separator + chunk.text, ""
            if chunk.text or chunk.finish_reason is not None:
                yield chunk
            if chunk.finish_reason is not None:
                return
