"""One speech in the talker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from cornserve_executors.talker.prompt import TalkerPrompt
from cornserve_executors.talker.spoken_text import SpokenText


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
    vocoder: Any
    """The state of the speech in the vocoder."""
    chunk_frames: int
    """The size of the next chunk."""
    rows: list[torch.Tensor] = field(default_factory=list)
    """The tokens of the text after the first one, as the talker reads them. The shape of each is [width]."""
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
    is_decoded: bool = False
    """Whether the vocoder has decoded the whole speech."""
    chunks: list[torch.Tensor] = field(default_factory=list)
    """Samples, or codes without a vocoder, that have not been taken yet."""
    failure: Exception | None = None
    """The error of the vocoder, after which its state is incomplete."""
    has_ended: bool = False
    """Whether the talker has generated its end."""

    @property
    def has_started(self) -> bool:
        return self.length > 0

    @property
    def last_hidden(self) -> torch.Tensor:
        """The talker's last output, of the shape [1, 1, width]. Only after the first step."""
        assert self.hidden is not None
        return self.hidden

    @property
    def is_done(self) -> bool:
        return self.has_ended or len(self.frames) >= self.max_frames

    @property
    def is_ready(self) -> bool:
        """Whether the next step does not have to wait for a token."""
        return not self.has_started or self.text.is_complete or len(self.frames) + 1 < len(self.text.tokens)

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

    def add_samples(self, samples: torch.Tensor) -> None:
        """Adds decoded samples, of the shape [samples]."""
        if len(samples):
            self.chunks.append(samples.cpu())

    def take_chunks(self) -> list[torch.Tensor]:
        """Returns the samples since the last call."""
        chunks, self.chunks = self.chunks, []
        return chunks
