"""Converts vLLM's log probabilities to OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.logprobs import Logprob

from cornserve_tasklib.chat_response import PromptLogprob, PromptLogprobs, TokenLogprob, TokenLogprobs

IMPOSSIBLE = -9999.0
"""Replaces minus infinity, which JSON does not support, as OpenAI and vLLM do."""


def token_logprobs(
    token_ids: Sequence[int], positions: Sequence[Mapping[int, Logprob] | None], tokenizer: Any, top: int
) -> list[TokenLogprobs]:
    """Returns the log probability of each token, and those of the `top` likeliest tokens at its position."""
    return [
        _convert_token(token_id, candidates or {}, tokenizer, top)
        for token_id, candidates in zip(token_ids, positions, strict=True)
    ]


def prompt_logprobs(positions: Sequence[Mapping[int, Logprob] | None], tokenizer: Any) -> PromptLogprobs:
    """Returns the log probabilities at each position of a prompt, which vLLM has for all positions but the first."""
    return [None if candidates is None else _convert_position(candidates, tokenizer) for candidates in positions]


def _convert_position(candidates: Mapping[int, Logprob], tokenizer: Any) -> dict[int, PromptLogprob]:
    return {
        token_id: PromptLogprob(
            logprob=max(candidate.logprob, IMPOSSIBLE),
            rank=candidate.rank,
            decoded_token=_decode(token_id, candidate, tokenizer),
        )
        for token_id, candidate in candidates.items()
    }


def _convert_token(token_id: int, candidates: Mapping[int, Logprob], tokenizer: Any, top: int) -> TokenLogprobs:
    likeliest = sorted(candidates.items(), key=lambda candidate: -candidate[1].logprob)[:top]
    chosen = candidates.get(token_id)
    text = _decode(token_id, chosen, tokenizer)
    return TokenLogprobs(
        token=text,
        logprob=None if chosen is None else max(chosen.logprob, IMPOSSIBLE),
        bytes=list(text.encode()),
        top_logprobs=[_convert_candidate(candidate, logprob, tokenizer) for candidate, logprob in likeliest],
    )


def _convert_candidate(token_id: int, logprob: Logprob, tokenizer: Any) -> TokenLogprob:
    text = _decode(token_id, logprob, tokenizer)
    return TokenLogprob(token=text, logprob=max(logprob.logprob, IMPOSSIBLE), bytes=list(text.encode()))


def _decode(token_id: int, logprob: Logprob | None, tokenizer: Any) -> str:
    text = None if logprob is None else logprob.decoded_token
    return str(tokenizer.decode([token_id])) if text is None else text
