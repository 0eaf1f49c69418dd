"""The paths of the operations that call models."""

from __future__ import annotations

ALIASES = {"/rerank": "/v1/rerank", "/v2/rerank": "/v1/rerank", "/score": "/v1/score"}
"""Further paths of operations, which vLLM's server also has and clients use."""

_OF_VLLM = frozenset({"/classify", "/tokenize", "/detokenize", *ALIASES})
"""Paths outside of /v1, with the names of vLLM's server."""


def calls_model(path: str) -> bool:
    return path.startswith("/v1/") or path in _OF_VLLM
