"""The text of a speech, which may still be generated while it is spoken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from cornserve_executors.base import InvalidRequestError


class SpokenText:
    """The tokens that a speech reads. The event loop adds them, and the device thread reads them.

    Args:
        parts: yields the tokens of a response, part by part.
        end_token: the token that is not spoken in the last position.
        vocabulary: the number of the model's tokens.
    """

    def __init__(self, parts: AsyncIterator[Sequence[int]], end_token: int, vocabulary: int) -> None:
        self.tokens: list[int] = []
        """The tokens so far, without an end token in the last position."""
        self.is_complete = False
        self._parts = parts
        self._end_token = end_token
        self._vocabulary = vocabulary
        self._held_back: list[int] = []
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

    def _add(self, part: Sequence[int]) -> None:
        unknown = [token for token in part if token >= self._vocabulary]
        if unknown:
            raise InvalidRequestError(f"token_ids: {unknown[0]} is not a token of the model")
        tokens = [*self._held_back, *part]
        self._held_back = [tokens.pop()] if tokens and tokens[-1] == self._end_token else []
        self.tokens += tokens
