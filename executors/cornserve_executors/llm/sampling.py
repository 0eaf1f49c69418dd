"""From a chat request to vLLM's sampling parameters."""

from __future__ import annotations

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from cornserve_executors.base import InvalidRequestError
from cornserve_tasklib.chat import ChatRequest

SEEDS = range(-(2**63), 2**63)
"""What the engine's arrays hold."""


def sampling_params(request: ChatRequest, prompt_tokens: int, context: int, *, stream: bool) -> SamplingParams:
    room = context - prompt_tokens
    if room < 1:
        raise InvalidRequestError(
            f"the prompt has {prompt_tokens} tokens, which leaves no room for an answer in a context of {context}"
        )
    if request.seed is not None and request.seed not in SEEDS:
        raise InvalidRequestError(f"seed must be a 64-bit integer, not {request.seed}")
    return SamplingParams(
        max_tokens=min(request.token_limit or room, room),
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        stop=request.stop,
        ignore_eos=request.ignore_eos,
        output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
    )
