"""One speech in the talker."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from cornserve_executors.talker.prompt import TalkerPrompt
from cornserve_executors.talker.spoken_text import SpokenText
from cornserve_executors.talker.vocoder import VocoderState

MAX_CHUNK_FRAMES = 16
"""The maximum number of frames that the vocoder decodes at once. The first chunk has one frame, and the size
doubles with each chunk, so that the first samples arrive early."""


@dataclass(slots=True, eq=False)
class SpeechState:
    """A speech between two steps."""

    prompt: TalkerPrompt
    """The input of the first forward pass."""
    text: SpokenText
    """The first token is part of the prompt, and each step reads the next one."""
    seed: int
    temperature: float
    max_frames: int
    vocoder: VocoderState
    rows: list[torch.Tensor] = field(default_factory=list)
    """The tokens of the text after the first, as the talker reads them. The shape of each is [width]."""
    has_all_rows: bool = False
    length: int = 0
    """The tokens in the talker's cache."""
    code: int = 0
    """The first code of the next frame."""
    hidden: torch.Tensor | None = None
    """The talker's last output, of the shape [1, 1, width]. None before the first step."""
    frames: list[list[int]] = field(default_factory=list)
    """The codes of all frames."""
    decoded: int = 0
    """The number of frames that the vocoder has decoded."""
    chunk_frames: int = 1
    """The size of the next chunk."""
    chunks: list[torch.Tensor] = field(default_factory=list)
    """Samples that have not been taken yet."""
    failure: Exception | None = None
    """The error of the vocoder, after which its state is incomplete."""
    has_ended: bool = False
    """Whether the talker has generated its end."""

    @property
    def is_done(self) -> bool:
        return self.has_ended or len(self.frames) >= self.max_frames

    @property
    def is_ready(self) -> bool:
        """Whether the next step does not have to wait for a token."""
        return self.hidden is None or self.text.is_complete or len(self.frames) + 1 < len(self.text.tokens)

    @property
    def has_row(self) -> bool:
        """Whether the next step has its row. After the rows of the text, that is the end, and then padding."""
        return self.has_all_rows or len(self.frames) < len(self.rows)

    @property
    def next_chunk(self) -> list[list[int]]:
        """The frames that the vocoder decodes next, or none until all of them exist.

        The chunks do not depend on the steps that have generated the frames: a repeated step adds another frame, and
        samples of other chunks differ in their rounding.
        """
        frames = self.frames[self.decoded : self.decoded + self.chunk_frames]
        return frames if self.is_done or len(frames) == self.chunk_frames else []

    def take_chunks(self) -> list[torch.Tensor]:
        """Returns the samples since the last call."""
        chunks, self.chunks = self.chunks, []
        return chunks
