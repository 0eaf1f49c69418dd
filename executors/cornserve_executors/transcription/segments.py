"""Divides a clip's transcript into segments, at the timestamps that Whisper generates as tokens."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from vllm.logprobs import Logprob

from cornserve_tasklib.transcription import TranscriptionSegment

SECONDS_PER_TIMESTAMP = 0.02


class SegmentBuilder:
    """Builds the segments of the clips of one request, as vLLM's server does.

    Two consecutive timestamps end a segment and begin the next one. Text after the last timestamp has no segment.
    """

    def __init__(self, tokenizer: Any, temperature: float) -> None:
        self._tokenizer = tokenizer
        self._temperature = temperature
        self._zero: int = tokenizer.encode("<|0.00|>", add_special_tokens=False)[0]
        """The first timestamp. All later tokens of the vocabulary are timestamps."""

    def build(
        self, tokens: Sequence[int], logprobs: Sequence[Mapping[int, Logprob]], clip_start: float
    ) -> list[TranscriptionSegment]:
        """Returns the segments of a clip.

        Args:
            tokens: the generated tokens, which follow the timestamp of zero seconds.
            logprobs: the log probabilities at the positions of the tokens.
            clip_start: the start of the clip, in seconds.
        """
        zero = self._zero
        text = tokens[:-1] if tokens and tokens[-1] == self._tokenizer.eos_token_id else tokens
        sequence = [zero, *text]
        if len(sequence) > 1 and sequence[-1] >= zero > sequence[-2]:
            sequence.append(sequence[-1])
        ends = [index for index in range(1, len(sequence)) if min(sequence[index - 1 : index + 1]) >= zero]
        segments: list[TranscriptionSegment] = []
        for first, end in pairwise([0, *ends]):
            logprob = sum(logprobs[index - 1][sequence[index]].logprob for index in range(first + 1, end))
            segments.append(self._segment(len(segments), sequence[first:end], logprob / (end - first), clip_start))
        return segments

    def _segment(self, id: int, tokens: Sequence[int], logprob: float, clip_start: float) -> TranscriptionSegment:
        """Returns the segment of tokens that begin and end with a timestamp."""
        text = self._tokenizer.decode(tokens[1:-1])
        encoded = text.encode()
        return TranscriptionSegment(
            id=id,
            seek=int(clip_start),
            start=clip_start + SECONDS_PER_TIMESTAMP * (tokens[0] - self._zero),
            end=clip_start + SECONDS_PER_TIMESTAMP * (tokens[-1] - self._zero),
            text=text,
            tokens=list(tokens[1:-1]),
            temperature=self._temperature,
            avg_logprob=logprob,
            compression_ratio=len(encoded) / len(zlib.compress(encoded)),
        )
