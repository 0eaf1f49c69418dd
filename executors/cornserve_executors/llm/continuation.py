"""Continues a response that another executor began before it died.

The tokens whose text was delivered become part of the prompt. An engine may have held back the text of further tokens,
because it could be the start of a stop string or half a character. Those tokens are generated again, and the overlap
with the delivered text is removed. Greedy decoding generates the same tokens again. Sampling does not, so a sampled
response with such tokens has no exact continuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tokenizers.decoders import DecodeStream
from transformers import TokenizersBackend

from cornserve_executors.base import CannotContinueError
from cornserve_executors.base.repeated_output import strip_delivered
from cornserve_tasklib.chat_response import ChatChunk

CONTEXT_TOKENS = 64
"""The tokens of the prompt on which the text of a following token can depend."""


class Continuation:
    """The delivered part of a response. Raises `CannotContinueError` if the response has no exact continuation."""

    def __init__(self, delivered: Sequence[ChatChunk], prompt: Sequence[int], tokenizer: Any, *, greedy: bool) -> None:
        self.delivered = delivered
        tokens = [token for chunk in delivered for token in chunk.token_ids]
        characters = sum(len(chunk.text) for chunk in delivered)
        text_lengths = _text_lengths(tokens, prompt, tokenizer)
        kept_length = max(length for length in text_lengths if length <= characters)
        self.kept_tokens = tokens[: text_lengths.index(kept_length)]
        """Delivered tokens that become part of the prompt."""
        self._tokens = tokens[len(self.kept_tokens) :]
        """Delivered tokens that are generated again."""
        self._text = "".join([chunk.text for chunk in delivered])[kept_length:]
        """Their delivered text."""
        if not greedy and (self._tokens or self._text):
            raise CannotContinueError("a sampled response with undelivered text cannot be continued")

    def remove_delivered(self, chunk: ChatChunk) -> None:
        """Removes what was delivered from the next chunk. Raises `NotRepeatedError` if it differs."""
        chunk.token_ids, self._tokens = strip_delivered(chunk.token_ids, self._tokens)
        chunk.text, self._text = strip_delivered(chunk.text, self._text)


def _text_lengths(tokens: Sequence[int], prompt: Sequence[int], tokenizer: Any) -> list[int]:
    """Returns the text length of the first n tokens, for n from 0. An incomplete character counts 0."""
    if not isinstance(tokenizer, TokenizersBackend):
        raise CannotContinueError(f"unsupported tokenizer {type(tokenizer).__name__}: responses cannot be continued")
    # Decodes as vLLM's detokenizer does, which the last tokens of the prompt suffice for.
    stream = DecodeStream(ids=list(prompt[-CONTEXT_TOKENS:]), skip_special_tokens=True)
    texts = (stream.step(tokenizer.backend_tokenizer, token) or "" for token in tokens)
    return list(accumulate((len(text) for text in texts), initial=0))
