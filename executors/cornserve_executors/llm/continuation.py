"""Where an answer goes on that another executor has begun, and did not live to end.

The tokens whose text has been delivered become part of the prompt. What an engine holds back, because it may be the
start of a stop string or half of a character, was not delivered, though its tokens were: these are generated again, and
what overlaps with what was delivered is left out. Greedy decoding generates the same again; sampling does not, and then
there is no exact continuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tokenizers.decoders import DecodeStream
from transformers import TokenizersBackend

from cornserve_executors.base import InvalidRequestError
from cornserve_tasklib.response import ChatChunk


class Continuation:
    """Raises `InvalidRequestError` if there is no exact one."""

    def __init__(self, delivered: Sequence[ChatChunk], prompt: Sequence[int], tokenizer: Any, *, greedy: bool) -> None:
        self.delivered = delivered
        tokens = [token for chunk in delivered for token in chunk.token_ids]
        characters = sum(len(chunk.text) for chunk in delivered)
        ends = _ends(tokens, prompt, tokenizer)
        end = max(end for end in ends if end <= characters)
        self.kept = tokens[: ends.index(end)]
        """Tokens that go into the prompt."""
        self._tokens_again = len(tokens) - len(self.kept)
        self._characters_again = characters - end
        if not greedy and (self._tokens_again or self._characters_again):
            raise InvalidRequestError("what was sampled but not yet delivered cannot be sampled again")

    def cut(self, chunk: ChatChunk) -> None:
        """Takes from the next chunk what has been delivered before."""
        tokens, characters = len(chunk.token_ids), len(chunk.text)
        chunk.token_ids = chunk.token_ids[self._tokens_again :]
        chunk.text = chunk.text[self._characters_again :]
        self._tokens_again -= tokens - len(chunk.token_ids)
        self._characters_again -= characters - len(chunk.text)


def _ends(tokens: Sequence[int], prompt: Sequence[int], tokenizer: Any) -> list[int]:
    """How many characters the first n tokens make, for n from 0; half characters make none."""
    if not isinstance(tokenizer, TokenizersBackend):
        raise InvalidRequestError(f"answers cannot be continued with a {type(tokenizer).__name__}")
    # As vLLM's own detokenizer does it.
    stream = DecodeStream(ids=list(prompt), skip_special_tokens=True)
    pieces = (stream.step(tokenizer._tokenizer, token) or "" for token in tokens)
    return list(accumulate((len(piece) for piece in pieces), initial=0))
