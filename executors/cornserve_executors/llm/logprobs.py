"""vLLM's probabilities of tokens as OpenAI shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.logprobs import Logprob

from cornserve_tasklib.response import TokenLogprob, TokenLogprobs

IMPOSSIBLE = -9999.0
"""Stands for minus infinity, which JSON lacks; as at OpenAI and in vLLM."""


def token_logprobs(
    token_ids: Sequence[int], positions: Sequence[Mapping[int, Logprob] | None], tokenizer: Any, top: int
) -> list[TokenLogprobs]:
    """Of each token, with the `top` likeliest in its place."""
    return [
        _of_token(token_id, candidates or {}, tokenizer, top)
        for token_id, candidates in zip(token_ids, positions, strict=True)
    ]


def _of_token(token_id: int, candidates: Mapping[int, Logprob], tokenizer: Any, top: int) -> TokenLogprobs:
    likeliest = sorted(candidates.items(), key=lambda candidate: -candidate[1].logprob)[:top]
    chosen = candidates.get(token_id)
    text = _text(token_id, chosen, tokenizer)
    return TokenLogprobs(
        token=text,
        logprob=None if chosen is None else max(chosen.logprob, IMPOSSIBLE),
        bytes=list(text.encode()),
        top_logprobs=[_of_candidate(candidate, logprob, tokenizer) for candidate, logprob in likeliest],
    )


def _of_candidate(token_id: int, logprob: Logprob, tokenizer: Any) -> TokenLogprob:
    text = _text(token_id, logprob, tokenizer)
    return TokenLogprob(token=text, logprob=max(logprob.logprob, IMPOSSIBLE), bytes=list(text.encode()))


def _text(token_id: int, logprob: Logprob | None, tokenizer: Any) -> str:
    text = None if logprob is None else logprob.decoded_token
    return str(tokenizer.decode([token_id])) if text is None else text
