"""The text of a speech, which may still be generated while it is spoken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import torch

from cornserve_executors.base import InvalidRequestError


@dataclass(frozen=True, slots=True)
class SpokenPart:
    """The next tokens of a text."""

    tokens: Sequence[int]
    states: Sequence[torch.Tensor] = ()
    """The thinker's hidden states of the tokens, each of the shape [width], for talkers that read them."""


class SpokenText:
    """The tokens that a speech reads. The event loop adds them, and the device thread reads them.

    Args:
        parts: yields the tokens of a response, part by part.
        end_token: the token that is not spoken in the last position.
        vocabulary: the number of the model's tokens.
    """

    def __init__(self, parts: AsyncIterator[SpokenPart], end_token: int, vocabulary: int) -> None:
        self.tokens: list[int] = []
        """The tokens so far, without an end token in the last position."""
        self.states: list[torch.Tensor] = []
        """The hidden states of the tokens, for talkers that read them."""
        self.is_complete = False
        self._parts = parts
        self._end_token = end_token
        self._vocabulary = vocabulary
        self._held_back = SpokenPart(())
        """An end token that is spoken if another token follows."""

    async def read_first(self) -> None:
        """Waits for the first token, or the end of an empty text.

        Raises `InvalidRequestError` for an unknown token.
        """
        async for part in self._parts:
            self._add(part)
            if self.tokens:
                return
        self.is_complete = True

    async def read_rest(self, on_tokens: Callable[[], None]) -> None:
        """Reads the following tokens, and calls `on_tokens` after each part and at the end.

        Raises `InvalidRequestError` for an unknown token.
        """
        async for part in self._parts:
            self._add(part)
            on_tokens()
        self.is_complete = True
        on_tokens()

    def _add(self, part: SpokenPart) -> None:
        unknown = [token for token in part.tokens if token >= self._vocabulary]
        if unknown:
            raise InvalidRequestError(f"token_ids: {unknown[0]} is not a token of the model")
        tokens, states = [*self._held_back.tokens, *part.tokens], [*self._held_back.states, *part.states]
        spoken = len(tokens) - 1 if tokens and tokens[-1] == self._end_token else len(tokens)
        self._held_back = SpokenPart(tokens[spoken:], states[spoken:])
        self.states += states[:spoken]  # Before the tokens, because another thread reads them.
        self.tokens += tokens[:spoken]
