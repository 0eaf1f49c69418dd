"""Reads the tokens and the limits of the engines of language models, from the metrics of their replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from prometheus_client.samples import Sample

from cornserve.app.record import EngineTokens, GroupStatus
from cornserve.gateway.observe.replica_reader import read_metrics

_LIMIT: Final = "cornserve_llm_engine_limit"
_PROMPT: Final = "cornserve_llm_request_prompt_tokens"
_GENERATED: Final = "cornserve_llm_request_generation_tokens"


async def read_engine_tokens(groups: Sequence[GroupStatus]) -> dict[str, EngineTokens]:
    """Returns the tokens of each replica of a language model that answers, by id."""
    read = await read_metrics(
        (replica for group in groups for replica in group.replicas), (_LIMIT, _PROMPT, _GENERATED)
    )
    found = {id: _tokens(samples) for id, samples in read.items()}
    return {id: tokens for id, tokens in found.items() if tokens is not None}


def _tokens(samples: Sequence[Sample]) -> EngineTokens | None:
    limits = {sample.labels.get("limit"): int(sample.value) for sample in samples if sample.name == _LIMIT}
    total = Counter[str]()
    for sample in samples:
        total[sample.name] += int(sample.value)
    try:
        return EngineTokens(
            requests=total[f"{_PROMPT}_count"],
            prompt_tokens=total[f"{_PROMPT}_sum"],
            generated_tokens=total[f"{_GENERATED}_sum"],
            cache_tokens=limits["cache_tokens"],
            block_size=limits["block_size"],
            max_num_seqs=limits["max_num_seqs"],
            max_num_batched_tokens=limits["max_num_batched_tokens"],
        )
    except KeyError:
        return None
