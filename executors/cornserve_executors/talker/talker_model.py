"""The parts of an Omni model that speak, on one device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch

from cornserve_executors.talker.checkpoint import SpeechCheckpoint
from cornserve_executors.talker.prompt import TalkerPrompt, ThinkerPrompt
from cornserve_executors.talker.spoken_text import SpokenText
from cornserve_executors.talker.step import TalkerStep
from cornserve_executors.talker.vocoder import Vocoder
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.talker import TalkerRequest


class TalkerModel(ABC):
    """A talker, and its vocoder or the chunks of codes for another executor's."""

    prompt_name: ClassVar[str]
    """The part of a chat that the talker reads, as error messages name it."""

    def __init__(self, tokenizer: Any, embeddings: torch.Tensor, voices: Sequence[str], vocoder: Vocoder[Any]) -> None:
        """Keeps the loaded parts.

        Args:
            embeddings: the thinker's embeddings of tokens, of the shape [tokens, width].
            voices: names in lower case.
        """
        self.tokenizer = tokenizer
        self.embeddings = embeddings
        self.voices = sorted(voices)
        self.vocoder = vocoder

    @classmethod
    @abstractmethod
    def load(
        cls,
        config: Any,
        tokenizer: Any,
        checkpoint: SpeechCheckpoint,
        device: str,
        dtype: torch.dtype,
        vocoder: Vocoder[Any],
    ) -> Self:
        """Loads the talker and the embeddings. Raises `ExecutorStartError` if the checkpoint is incomplete."""

    @staticmethod
    @abstractmethod
    def voice_names(config: Any, settings: ModelSettings) -> list[str]:
        """Returns the names of the model's voices in lower case, without its weights."""

    @property
    @abstractmethod
    def end_token(self) -> int:
        """The token that ends a text, and is not spoken in the last position."""

    @abstractmethod
    def check(self, request: TalkerRequest) -> None:
        """Raises `InvalidRequestError` if the request lacks inputs that the talker reads."""

    @abstractmethod
    def prompt(
        self, request: TalkerRequest, text: SpokenText, prompt: ThinkerPrompt | None, voice: str
    ) -> TalkerPrompt:
        """Returns the input of the first step.

        Args:
            text: its first token has arrived.
            prompt: the prompt of the request, if it is a tensor.
        """

    @abstractmethod
    def step(self, slots: int, length: int, *, enforce_eager: bool) -> TalkerStep:
        """Allocates the talker's cache.

        Args:
            slots: the number of speeches.
            length: the number of tokens and frames of a speech.
            enforce_eager: see `TalkerOptions`.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def embed(self, tokens: Sequence[int]) -> torch.Tensor:
        """Returns the thinker's embeddings, of the shape [tokens, width]."""
        return self.embeddings[torch.tensor(tokens, dtype=torch.long, device=self.embeddings.device)]
